// Phases between joins, made from the layer program.
#include "decode/fused/phases.h"

#include <gtest/gtest.h>

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

TEST(Phases, RefuseWhatIsNoPrologue) {
  Program program = make_program(gemma_small());
  const Operation soft_cap = program.operations.back();
  program.operations.insert(program.operations.begin() + 3, soft_cap);
  EXPECT_TRUE(has(error_of([&] { make_phases(program); }), "unsupported: phases of layer 0"))
      << error_of([&] { make_phases(program); });
  program.operations.resize(4);
  EXPECT_TRUE(has(error_of([&] { make_phases(program); }), "unsupported"));
}

}  // namespace
}  // namespace weft::testing
