// Phases between joins, made from the layer program.
#include "decode/fused/phases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/decode/fused/shapes.h"

namespace weft::testing {
namespace {

TEST(Phases, OfALlamaAreNineALayerAndTheHead) {
  const Program program = make_program(llama_8b());
  const Phases phases = make_phases(program);
  EXPECT_EQ(phases.size(), 289);
  EXPECT_EQ(phases.of_layer, 9);
  EXPECT_EQ(to_string(phases, program),
            "289 phases, 288 joins: 9 a layer, and the head; layers repeat after 1\n"
            "phase                         writes      operations\n"
            "layer 0: qkv                  qkv         embed, norm, project\n"
            "layer 0: attention            states      rotate, append, attend\n"
            "layer 0: merge                attended    -\n"
            "layer 0: output               output      project\n"
            "layer 0: normed of output     normed      add, norm\n"
            "layer 0: gate_up              gate_up     project\n"
            "layer 0: gated of gate_up     gated       gate\n"
            "layer 0: down                 down        project\n"
            "layer 0: normed of down       normed      add, norm\n"
            "layer 1: qkv                  qkv         project\n"
            "layer 1: attention            states      rotate, append, attend\n"
            "layer 1: merge                attended    -\n"
            "layer 1: output               output      project\n"
            "layer 1: normed of output     normed      add, norm\n"
            "layer 1: gate_up              gate_up     project\n"
            "layer 1: gated of gate_up     gated       gate\n"
            "layer 1: down                 down        project\n"
            "layer 1: normed of down       normed      add, norm\n"
            "head                          logits      project\n");
}

TEST(Phases, OfStacksAreThoseOfOnePartOfTheLayers) {
  const Program attention = make_program(llama_8b(), LayerParts::attention);
  const Phases of_attention = make_phases(attention);
  EXPECT_EQ(of_attention.of_layer, 5);
  EXPECT_TRUE(has(to_string(of_attention, attention), "layer 0: normed of output     normed      add, norm\n"))
      << to_string(of_attention, attention);
  const Program feed_forward = make_program(llama_8b(), LayerParts::feed_forward);
  const Phases of_feed_forward = make_phases(feed_forward);
  EXPECT_EQ(of_feed_forward.of_layer, 4);
  EXPECT_TRUE(
      has(to_string(of_feed_forward, feed_forward), "layer 0: gate_up              gate_up     embed, norm, project\n"))
      << to_string(of_feed_forward, feed_forward);
  EXPECT_EQ(feed_forward.last_attend, feed_forward.operations.size());
  EXPECT_FALSE(has(to_string(feed_forward), "  attend "));
}

TEST(Phases, TakeNormsOfWhatIsAddedInTwo) {
  const Program program = make_program(gemma_small());
  const std::string text = to_string(make_phases(program), program);
  EXPECT_TRUE(has(text, "layer 0: squares of output")) << text;
  EXPECT_EQ(make_phases(program).layer_period, 2);
}

// What neither the walk nor a kernel computes must not become a phase: it would be left out.
class PhasesRefuse : public ::testing::Test {
 protected:
  using Operations = std::vector<Operation>;
  static Operations::iterator find(Operations& of, OperationKind kind) {
    return std::ranges::find(of, kind, &Operation::kind);
  }
  // Of a model with norms of heads, of what is added, and biases, one of whose layers is changed.
  template <class Change>
  static std::string refusal(const Change& change) {
    ModelConfig config = gemma_small();
    config.qk_norm = config.qkv_bias = config.output_bias = true;
    Program program = make_program(config);
    make_phases(program);
    change(program.operations);
    return error_of([&] { make_phases(program); });
  }
};

TEST_F(PhasesRefuse, WhatIsNoPrologue) {
  const std::string error = refusal([](Operations& all) { all.insert(all.begin() + 3, all.back()); });
  EXPECT_TRUE(has(error, "unsupported: phases of layer 0: attention: required soft_cap before attention")) << error;
  EXPECT_TRUE(has(refusal([](Operations& all) { all.resize(4); }), "unsupported"));
}

TEST_F(PhasesRefuse, HeadsThatAreMadeInAnotherOrder) {
  const auto says = [](const std::string& error, const char* part) {
    EXPECT_TRUE(has(error, "unsupported: phases of layer 0: attention: required ") && has(error, part)) << error;
  };
  says(refusal([](Operations& all) {
         std::iter_swap(find(all, OperationKind::norm_heads), find(all, OperationKind::rotate));
       }),
       "norm_heads before attention; supported are add_bias, norm_heads, rotate and append on heads, in this order");
  says(
      refusal([](Operations& all) { all.insert(find(all, OperationKind::rotate), *find(all, OperationKind::rotate)); }),
      "rotate before attention");
  says(refusal([](Operations& all) { find(all, OperationKind::rotate)->writes = {Buffer::query}; }),
       "rotate of other heads; supported are those of queries and keys");
  for (const OperationKind without : {OperationKind::rotate, OperationKind::append})
    says(refusal([&](Operations& all) { all.erase(find(all, without)); }), "attend of heads without rotate or append");
}

TEST_F(PhasesRefuse, OtherReductions) {
  const auto says = [](const std::string& error, const char* part) {
    EXPECT_TRUE(has(error, part) && has(error, " behind its product; supported are a bias, a norm of the sums"))
        << error;
  };
  const auto bias = [](Operations& all) { return *find(all, OperationKind::add_bias); };
  for (const int behind : {0, 1})
    says(refusal([&](Operations& all) { all.insert(find(all, OperationKind::gate) + behind, bias(all)); }),
         "unsupported: phases of layer 0: ");
  const auto behind_add = [&](Operations& all) { return find(all, OperationKind::add) + 1; };
  says(refusal([&](Operations& all) { all.insert(behind_add(all), bias(all)); }), "required add_bias");
  says(refusal([&](Operations& all) { all.insert(behind_add(all), *find(all, OperationKind::add)); }), "required add");
  says(refusal([&](Operations& all) { all.insert(find(all, OperationKind::add), bias(all)); }), "required add_bias");
}

TEST_F(PhasesRefuse, ABiasOfTheHead) {
  const std::string error = refusal([](Operations& all) { all.push_back(*find(all, OperationKind::add_bias)); });
  EXPECT_TRUE(has(error, "unsupported: phases of head: required add_bias behind its product; supported are soft_cap"))
      << error;
}

}  // namespace
}  // namespace weft::testing
