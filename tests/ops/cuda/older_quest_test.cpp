// Choices on a card without clusters, in the host machine: the last CTA of a list makes them.
#include "tests/ops/cuda/card_quest.h"

namespace weft::testing {
namespace {

class OlderCardQuest : public CardQuest {
 protected:
  OlderCardQuest() : CardQuest("sm_75") {}
};

TEST_F(OlderCardQuest, ChoosesWhatTheCpuChooses) {
  for (const int multiprocessors : {1, 8}) {  // a CTA a list, and several
    host_multiprocessors = multiprocessors;
    Tensors step;
    make_step(step,
              {.batch = 3, .heads = 2, .group = 4, .dim = 40, .most_pages = 140, .budget = 9, .kv_len = {557, 36, 7}});
    for (int again = 0; again < 2; ++again) {  // on the scratch that the first one leaves
      forget_lists(step);
      choose(step.card);
      choose(step.cpu);
      expect_same_lists(step);
    }
    synchronize();
  }
  Tensors step;  // more than shared memory has room for
  make_step(step, {.group = 4, .page_size = 1, .most_pages = 8300, .budget = 50, .kv_len = {8299}, .num_pages = 501});
  choose(step.card);
  choose(step.cpu);
  expect_same_lists(step);
  host_multiprocessors = 1;
}

}  // namespace
}  // namespace weft::testing
