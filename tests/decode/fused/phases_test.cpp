// Phases between joins, made from the layer program.
#include "decode/fused/phases.h"

#include <gtest/gtest.h>

#include "tests/decode/fused/shapes.h"

namespace weft::testing {
namespace {

TEST(Phases, OfALlamaAreSixALayerAndTheHead) {
  const Program program = make_program(llama_8b());
  const Phases phases = make_phases(program);
  EXPECT_EQ(phases.size(), 193);
  EXPECT_EQ(phases.of_layer, 6);
  EXPECT_EQ(to_string(phases, program),
            "193 phases, 192 joins: 6 a layer, and the head; layers repeat after 1\n"
            "phase                   prologue                                        writes      residual\n"
            "layer 0: qkv            embed, norm                                     qkv         embedding -> 0\n"
            "layer 0: attention      rotate, append                                  states      -\n"
            "layer 0: merge          -                                               attended    -\n"
            "layer 0: output         -                                               output      -\n"
            "layer 0: gate_up        add, norm                                       gate_up     0 -> 1\n"
            "layer 0: down           gate                                            down        -\n"
            "layer 1: qkv            add, norm                                       qkv         1 -> 0\n"
            "layer 1: attention      rotate, append                                  states      -\n"
            "layer 1: merge          -                                               attended    -\n"
            "layer 1: output         -                                               output      -\n"
            "layer 1: gate_up        add, norm                                       gate_up     0 -> 1\n"
            "layer 1: down           gate                                            down        -\n"
            "head                    add, norm                                       logits      1 -> stays\n");
}

TEST(Phases, TakeNormsOfWhatIsAddedIntoPrologues) {
  const Program program = make_program(gemma_small());
  const std::string text = to_string(make_phases(program), program);
  EXPECT_TRUE(has(text, "layer 0: gate_up        norm, add, norm")) << text;
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
