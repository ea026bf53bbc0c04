// Writes the files that fuzzing starts from: fuzz_seeds FOLDER.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"

namespace {

using weft::testing::GgufWriter;
using weft::testing::random_model;

// A whole model of a few hundred weights, without a tokenizer.
GgufWriter tiny_model(const std::string& architecture, uint32_t weights) {
  const bool floats = weights == GgufWriter::kF32 || weights == GgufWriter::kF16 || weights == GgufWriter::kBF16;
  const bool super_blocks = weights == GgufWriter::kQ4_K || weights == GgufWriter::kQ6_K;
  const uint32_t width = floats ? 8 : super_blocks ? 256 : 32;
  GgufWriter gguf = random_model({.architecture = architecture,
                                  .weights = weights,
                                  .tied = true,
                                  .num_layers = 1,
                                  .hidden_size = width,
                                  .intermediate_size = width,
                                  .num_qo_heads = super_blocks ? 1 : width / 8,
                                  .num_kv_heads = 1,
                                  .head_dim = super_blocks ? 256u : 8u});
  for (const char* key : {"tokens", "scores", "token_type"}) gguf.remove(std::string("tokenizer.ggml.") + key);
  GgufWriter::Tensor& embedding = gguf.tensor("token_embd.weight");
  embedding.data.resize(embedding.data.size() / embedding.extents[1]);
  embedding.extents[1] = 1;
  return gguf;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  try {
    const std::string folder = argv[1];
    std::filesystem::create_directories(folder);
    tiny_model("llama", GgufWriter::kF32).write(folder + "/llama_f32.gguf");
    tiny_model("qwen2", GgufWriter::kBF16).write(folder + "/qwen2_bf16.gguf");
    tiny_model("qwen3", GgufWriter::kQ8_0).write(folder + "/qwen3_q8_0.gguf");
    tiny_model("llama", GgufWriter::kQ4_0).write(folder + "/llama_q4_0.gguf");
    tiny_model("llama", GgufWriter::kQ4_1)
        .add("llama.rope.scaling.type", "linear")
        .add("llama.rope.scaling.factor", 2.f)
        .write(folder + "/llama_q4_1.gguf");
    tiny_model("gemma3", GgufWriter::kQ5_0)
        .add("gemma3.attention.sliding_window_pattern", 2u)
        .add("gemma3.rope.freq_base_swa", 5000.f)
        .write(folder + "/gemma3_q5_0.gguf");
    tiny_model("gemma2", GgufWriter::kF16).add("gemma2.attention.scale", 0.5f).write(folder + "/gemma2_f16.gguf");
    tiny_model("qwen2", GgufWriter::kF16)
        .add("qwen2.rope.scaling.type", "yarn")
        .add("qwen2.rope.scaling.factor", 4.f)
        .add("qwen2.rope.scaling.original_context_length", 1024u)
        .write(folder + "/qwen2_f16.gguf");
    // Without the matrices of the feed-forward: the fuzzer's inputs are short.
    for (const uint32_t type : {GgufWriter::kQ4_K, GgufWriter::kQ6_K}) {
      GgufWriter gguf = tiny_model("llama", type);
      std::erase_if(gguf.tensors, [](const GgufWriter::Tensor& t) {
        return t.name.rfind("blk.0.", 0) == 0 && t.extents.size() == 2;
      });
      gguf.write(folder + (type == GgufWriter::kQ4_K ? "/llama_q4_k.gguf" : "/llama_q6_k.gguf"));
    }
    // Two parts, with the mark between them that fuzz_gguf.cpp looks for.
    GgufWriter whole = tiny_model("llama", GgufWriter::kF16), rest;
    rest.tensors.assign(whole.tensors.begin() + 3, whole.tensors.end());
    whole.tensors.resize(3);
    const auto tensors = static_cast<uint32_t>(whole.tensors.size() + rest.tensors.size());
    for (uint32_t i = 0; i < 2; ++i)
      (i == 0 ? whole : rest).add("split.no", i).add("split.count", 2u).add("split.tensors.count", tensors);
    std::ofstream(folder + "/llama_f16_parts.gguf", std::ios::binary) << whole.bytes() << "|next part|" << rest.bytes();
    tiny_model("llama", GgufWriter::kF32)
        .add("general.type", "model")
        .add("llama.attention.causal", true)
        .write(folder + "/llama_keys.gguf");
    GgufWriter values;
    values.version = 2;
    values.alignment = 64;
    values.add("general.alignment", 64u).add("a.texts", std::vector<std::string>{"x", "", "yz"}).add("a.flag", true);
    values.add("a.ints", std::vector<int32_t>{1, 2})
        .add("a.floats", std::vector<float>{0.5f})
        .add("a.i64", int64_t{-1});
    values.add_tensor({.name = "t", .extents = {2, 2, 2, 1}, .data = std::string(32, '\1')});
    values.write(folder + "/values.gguf");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
    return 1;
  }
  return 0;
}
