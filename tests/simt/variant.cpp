// A variant's text behind the head of CUDA kernels, as generated text has it.
#include "tests/simt/kernels/functions.h"
#include "tests/simt/kernels/scores.h"

namespace capped {

using weft::real;
using weft::Row;
using weft::Score;
using weft::Vec;

struct P {
  real sm_scale;
  weft::Tensor<unsigned char, 1> bits;
  WEFT_INLINE static P weft_load(const weft::abi::Slot* s) {
    return {static_cast<real>(s[0].real), {static_cast<const unsigned char*>(s[1].pointer), {1}}};
  }
};

struct Capped {
  real logits_transform(P, Score c, real s) { return 3 * weft::tanh(s / 3) + real(c.kv_idx - c.qo_idx); }
  bool logits_mask(P p, Score c) { return weft::mask_bit(p.bits, 0, c.qo_idx * c.kv_len, c); }
  real output_transform(P, Vec x, int i, Row) { return weft::pair(x, i); }
};

}  // namespace capped

WEFT_KERNEL(128, 1) void weft_scores(WEFT_PARAM weft::ScoresArgs args) {
  weft::Scores<capped::P, capped::Capped, weft::detail::NoHooks>::run(args);
}
