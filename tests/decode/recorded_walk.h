// What LayerByLayer has the executor of a device run, beside the program that it walks.
//
//   RecordedWalk walk(model, Device::cpu());
//   walk.run(5, 2);                             // five tokens, of which the last two give logits
//   walk.runs();                                // operations that ran as one, in order
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "decode/layer_by_layer.h"
#include "tests/decode/steps.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft::testing {

class RecordedWalk {
 public:
  RecordedWalk(const RandomModelOptions& model, Device device) {
    const std::string path = folder_.path("model.gguf");
    random_model(model).write(path);
    const ModelFile file(path);
    config_ = file.config();
    options_ = {.device = device, .max_tokens = 256};
    program_ = decode::make_program(config_);
    sequences_ = std::make_unique<decode::Sequences>(config_, options_, decode::kv_dtype_of(options_));
    layers_ = std::make_unique<decode::LayerByLayer>(
        program_, std::make_unique<Recorder>(
                      decode::make_executor(config_, decode::read_sources(file), options_, *sequences_), runs_));
    sequence_ = sequences_->add();
  }

  void run(int64_t tokens, int64_t wanted) {
    runs_.clear();
    step_.clear();
    sequences_->append(sequence_, tokens);
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    std::iota(ids.begin(), ids.end(), 3);
    add_rows(step_, *sequences_, sequence_, ids);
    step_.wanted.erase(step_.wanted.begin(), step_.wanted.end() - wanted);
    logits_.resize(static_cast<size_t>((wanted + 1) * config_.vocab_size));
    layers_->run(step_, {.logits = logits_.data()});
  }

  const decode::Program& program() const { return program_; }
  const std::vector<std::vector<decode::Operation>>& runs() const { return runs_; }
  std::vector<decode::Operation> operations() const {
    std::vector<decode::Operation> all;
    for (const auto& fused : runs_) all.insert(all.end(), fused.begin(), fused.end());
    return all;
  }
  // The kinds of those that ran as one, a line each.
  std::string text() const {
    std::string text;
    for (const auto& fused : runs_) {
      std::string line;
      for (const decode::Operation& operation : fused)
        line += (line.empty() ? "" : " ") + std::string(to_string(operation.kind));
      text += line + "\n";
    }
    return text;
  }

 private:
  using Runs = std::vector<std::vector<decode::Operation>>;
  class Recorder : public decode::Executor {
   public:
    Recorder(std::unique_ptr<Executor> executor, Runs& runs) : executor_(std::move(executor)), runs_(runs) {}
    size_t weight_bytes() const override { return executor_->weight_bytes(); }
    bool fuses(const decode::Operation& operation, const decode::Operation& next) const override {
      return executor_->fuses(operation, next);
    }
    void plan(const decode::Step& step) override { executor_->plan(step); }
    void upload(const decode::Step& step) override { executor_->upload(step); }
    void enqueue(const decode::Step& step, const decode::StepOutput& output,
                 const std::function<void()>& walk) override {
      executor_->enqueue(step, output, walk);
    }
    void synchronize() override { executor_->synchronize(); }
    void run(std::span<const decode::Operation> fused) override {
      runs_.emplace_back(fused.begin(), fused.end());
      executor_->run(fused);
    }
    void keep(const std::vector<int64_t>& rows) override { executor_->keep(rows); }

   private:
    std::unique_ptr<Executor> executor_;
    Runs& runs_;
  };

  TempFolder folder_;
  ModelConfig config_;
  ForwardOptions options_;
  decode::Program program_;
  std::unique_ptr<decode::Sequences> sequences_;
  Runs runs_;
  std::unique_ptr<decode::LayerByLayer> layers_;
  ForwardPass::SequenceId sequence_ = 0;
  decode::Step step_;
  std::vector<float> logits_;
};

// Of every family, one and several layers, with and without a bias of the output projection.
inline std::vector<RandomModelOptions> models_of_every_family() {
  std::vector<RandomModelOptions> all;
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma2", "gemma3"})
    for (const uint32_t layers : {1, 2, 7})
      for (const bool bias : {false, true})
        all.push_back({.architecture = architecture,
                       .tied = bias,
                       .num_layers = layers,
                       .hidden_size = 64,
                       .intermediate_size = 96,
                       .num_qo_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 16,
                       .sliding_window = 5,
                       .output_bias = bias});
  return all;
}

}  // namespace weft::testing
