// An object that was moved from owns nothing: every member function refuses it by name, and it may be destroyed, moved
// and assigned to.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm/linear.h"
#include "tests/support/random_model.h"
#include "weft/attention.h"
#include "weft/levels.h"
#include "weft/model.h"

namespace weft {
namespace {

// Every call throws Error(invalid_argument) and says what is empty.
void expect_refused(const std::string& name, const std::vector<std::function<void()>>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) try {
      calls[i]();
      ADD_FAILURE() << name << ": call " << i << " was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), "invalid_argument") << error.what();
      EXPECT_NE(std::string(error.what()).find(name + ": is empty"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("moved from"), std::string::npos) << error.what();
    }
}

// Moves `object` away and back by every route; `refuses` is asked of each object that is left empty.
template <class T>
void move_around(T object, const std::function<void(T&)>& works, const std::function<void(T&)>& refuses) {
  T constructed(std::move(object));
  refuses(object);
  T& self = object;
  object = std::move(self);  // an empty one to itself
  refuses(object);
  T taken(std::move(object));  // an empty one on
  refuses(taken);
  taken = std::move(object);
  refuses(taken);
  works(constructed);
  object = std::move(constructed);
  refuses(constructed);
  works(object);
}

class MovedModel : public ::testing::Test {
 protected:
  MovedModel() { testing::random_model({}).write(path()); }
  std::string path() const { return folder_.path("model.gguf"); }
  testing::TempFolder folder_;
};

TEST(Moved, PageTableIsRefused) {
  move_around<PageTable>(
      PageTable(4, 8), [](PageTable& t) { t.append(t.add(), 3); },
      [](PageTable& t) {
        expect_refused("page table",
                       {[&] { t.add(); }, [&] { t.fork(0, 0); }, [&] { t.append(0, 1); }, [&] { t.truncate(0, 0); },
                        [&] { t.release(0); }, [&] { (void)t.length(0); }, [&] { (void)t.pages(0); },
                        [&] { (void)t.page_size(); }, [&] { (void)t.num_pages(); }, [&] { (void)t.num_free_pages(); },
                        [&] { t.view({}); }, [&] { t.view({0}); }});
      });
}

TEST(Moved, KernelIsRefused) {
  const AttentionSpec spec{.kv_form = KvForm::ragged};
  move_around<AttentionKernel>(
      build(spec, Device::cpu()), [&](AttentionKernel& k) { EXPECT_EQ(k.spec(), spec); },
      [](AttentionKernel& k) {
        Workspace workspace;
        expect_refused("kernel", {[&] { (void)k.spec(); }, [&] { k.plan({}); }, [&] { (void)k.workspace_bytes({}); },
                                  [&] { k.run(workspace, {}); }, [&] { k.run(Plan(), {}, workspace); },
                                  [&] { (void)k.impl(); }, [&] { levels_from_page_tables(k, {}); }});
      });
}

TEST(Moved, PlanIsRefused) {
  const AttentionKernel kernel = build({.kv_form = KvForm::ragged}, Device::cpu());
  const std::vector<int32_t> indptr{0, 5};
  const PlanInput input{.num_qo_heads = 1, .num_kv_heads = 1, .qo_indptr = indptr, .kv_indptr = indptr};
  move_around<Plan>(
      kernel.plan(input), [&](Plan& p) { EXPECT_TRUE(p.covers(input)); },
      [&](Plan& p) {
        Workspace workspace(Device::cpu(), 64);
        expect_refused(
            "plan", {[&] { (void)p.workspace_bytes(); }, [&] { p.upload(workspace); }, [&] { (void)p.covers(input); },
                     [&] { p.update(input); }, [&] { (void)p.num_workers(); }, [&] { (void)p.num_items(); },
                     [&] { (void)p.num_partials(); }, [&] { (void)p.makespan(); }, [&] { (void)p.lower_bound(); },
                     [&] { (void)p.signature(); }, [&] { (void)p.to_string(); }, [&] { (void)p.to_svg(); },
                     [&] { (void)p.impl(); }, [&] { kernel.run(p, {}, workspace); }});
      });
}

// A workspace without memory is one that was never made.
TEST(Moved, WorkspaceIsEmpty) {
  move_around<Workspace>(
      Workspace(Device::cpu(), 100), [](Workspace& w) { EXPECT_EQ(w.bytes(), 100u); },
      [](Workspace& w) {
        EXPECT_EQ(w.data(), nullptr);
        EXPECT_EQ(w.bytes(), 0u);
      });
}

TEST_F(MovedModel, FileIsRefused) {
  move_around<ModelFile>(
      ModelFile(path()), [](ModelFile& f) { EXPECT_EQ(f.config().num_layers, 2); },
      [](ModelFile& f) {
        expect_refused(
            "model file",
            {[&] { (void)f.path(); }, [&] { (void)f.file_bytes(); }, [&] { (void)f.config(); },
             [&] { (void)f.weights(); }, [&] { (void)f.find_weight("x"); }, [&] { (void)f.weight("x"); },
             [&] { f.read({}, 0, 0, nullptr); }, [&] { (void)f.has("x"); }, [&] { (void)f.get_int("x"); },
             [&] { (void)f.get_float("x"); }, [&] { (void)f.get_bool("x"); }, [&] { (void)f.get_string("x"); },
             [&] { (void)f.get_strings("x"); }, [&] { (void)f.get_floats("x"); }, [&] { (void)f.get_ints("x"); },
             [&] { (void)f.count("x"); }, [&] { Tokenizer(f).vocab_size(); }, [&] { ForwardPass(f, {}).config(); }});
      });
}

TEST_F(MovedModel, TokenizerIsRefused) {
  const ModelFile file(path());
  move_around<Tokenizer>(
      Tokenizer(file), [](Tokenizer& t) { EXPECT_FALSE(t.encode("a").empty()); },
      [](Tokenizer& t) {
        const std::vector<int32_t> ids{1};
        expect_refused("tokenizer", {[&] { t.encode("a"); }, [&] { (void)t.decode(ids); }, [&] { (void)t.piece(1); },
                                     [&] { (void)t.token("a"); }, [&] { (void)t.vocab_size(); }, [&] { (void)t.bos(); },
                                     [&] { (void)t.eos(); }, [&] { (void)t.is_end(1); }, [&] { (void)t.adds_bos(); }});
      });
}

TEST(Moved, ChatTemplateIsRefused) {
  move_around<ChatTemplate>(
      ChatTemplate("hi"), [](ChatTemplate& t) { EXPECT_EQ(t.render("{}"), "hi"); },
      [](ChatTemplate& t) { expect_refused("chat template", {[&] { (void)t.render("{}"); }}); });
}

TEST_F(MovedModel, ForwardPassIsRefused) {
  const ModelFile file(path());
  move_around<ForwardPass>(
      ForwardPass(file, {.max_tokens = 32, .max_sequences = 2}),
      [](ForwardPass& f) {
        const std::vector<int32_t> ids{5};
        const auto sequence = f.add_sequence();
        EXPECT_EQ(f.run({{.sequence = sequence, .tokens = ids}}).shape(0), 1);
      },
      [](ForwardPass& f) {
        const std::vector<ForwardPass::Input> inputs;
        expect_refused("forward pass", {[&] { (void)f.config(); }, [&] { f.add_sequence(); }, [&] { f.fork(0, 0); },
                                        [&] { f.truncate(0, 0); }, [&] { f.release(0); }, [&] { (void)f.length(0); },
                                        [&] { f.run(inputs); }, [&] { f.run({{.sequence = 0, .tokens = {}}}); },
                                        [&] { (void)f.weight_bytes(); }, [&] { (void)f.kv_bytes_per_token(); }});
      });
}

TEST(Moved, LevelsAreNone) {
  move_around<SharedLevels>(
      SharedLevels(), [](SharedLevels&) {},
      [](SharedLevels& s) {
        EXPECT_TRUE(s.empty());
        EXPECT_TRUE(s.apply({}).levels.empty());
      });
}

TEST(Moved, PackedWeightsAreRefused) {
  const std::vector<float> matrix(64, 1.f);
  const gemm::WeightSource source{.rows = 8, .cols = 8, .read = [&](int64_t begin, int64_t end, void* to) {
                                    std::copy(matrix.begin() + begin * 8, matrix.begin() + end * 8,
                                              static_cast<float*>(to));
                                  }};
  WorkerTeam team(1);
  std::vector<float> y(8);
  const auto row = [&](gemm::PackedLinear& w) { gemm::read_row(w, 0, y.data()); };
  move_around<gemm::PackedLinear>(
      gemm::pack_linear({&source, 1}, Precision::exact, current_isa(), team), row, [&](gemm::PackedLinear& w) {
        EXPECT_EQ(w.rows(), 0);
        gemm::Scratch scratch;
        expect_refused("packed weights", {[&] { row(w); }, [&] { (void)w.impl(); },
                                          [&] { gemm::linear(w, y.data(), 1, 8, y.data(), 8, scratch, team); }});
      });
}

}  // namespace
}  // namespace weft
