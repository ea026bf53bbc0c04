// Options of the verbs that run a model, and the engine that they run it with.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/arguments.h"
#include "weft/device.h"
#include "weft/model.h"

namespace weft::cli {

struct ModelOptions {
  std::string model;
  int threads = 0;
  int64_t ctx = 0;
  std::string kv_dtype = "auto", device = "cpu", precision = "default", step = "layered";
  int step_ctas = 0;
  bool invariant = false;
};
// `context_help`: what --ctx 0 stands for.
void add_model_options(Verb& verb, ModelOptions& options,
                       const char* context_help = "2048 or what the text needs, within the model's own");
// --step-ctas alone, for other verbs that run steps.
void add_step_ctas(Verb& verb, int& ctas);
// Throws Error(unsupported | invalid_device) for a device that is not there, Error(invalid_argument) for options that
// do not go together. Before anything is loaded.
void check_model_options(const ModelOptions& options);
// On stderr how steps run and why not otherwise, unless they are layered as asked (ForwardPass::step_form).
void say_step_form(std::string_view form);

// A forward pass and the team it runs on. `tokens` is the context it is made for; progress goes to stderr.
struct Engine {
  std::unique_ptr<WorkerTeam> team;  // null: the shared team
  std::unique_ptr<ForwardPass> forward;
};
Engine load_engine(const ModelFile& file, const ModelOptions& options, int64_t tokens);

// The context to use: --ctx, else `wanted` or 2048, whichever is more, but never more than the model's own.
// Throws Error(invalid_argument) for a --ctx out of range.
int64_t choose_context(const ModelConfig& config, const ModelOptions& options, int64_t wanted);

}  // namespace weft::cli
