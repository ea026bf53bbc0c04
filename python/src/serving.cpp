// weft.serve: the engine that answers many requests at once.
#include <nanobind/stl/pair.h>

#include <utility>
#include <vector>

#include "fields.h"
#include "models.h"
#include "module.h"
#include "struct.h"
#include "weft/serve.h"

namespace weft {

template <>
struct Fields<serve::Request> {
  using Request = serve::Request;
  static constexpr auto list = field_list(
      Field{"prompt", &Request::prompt}, Field{"max_tokens", &Request::max_tokens},
      Field{"min_tokens", &Request::min_tokens}, Field{"ignore_eos", &Request::ignore_eos},
      Field{"special_text", &Request::special_text}, Field{"n", &Request::n}, Field{"sampling", &Request::sampling},
      Field{"penalties", &Request::penalties}, Field{"logit_bias", &Request::logit_bias}, Field{"stop", &Request::stop},
      Field{"seed", &Request::seed}, Field{"logprobs", &Request::logprobs},
      Field{"prompt_logprobs", &Request::prompt_logprobs}, Field{"priority", &Request::priority},
      Field{"key", &Request::key}, Field{"reproducible", &Request::reproducible},
      Field{"max_queue_s", &Request::max_queue_s}, Field{"max_total_s", &Request::max_total_s});
};

}  // namespace weft

namespace weft::python {
namespace {

using namespace serve;

struct PyEngine {
  std::shared_ptr<ModelFile> file;
  std::shared_ptr<Tokenizer> tokenizer;
  std::shared_ptr<WorkerTeam> team;
  Engine engine;
};

void define_updates(nb::module_& m) {
  nb::class_<TokenLogprob>(m, "TokenLogprob", "Of the model itself: before bias, penalties and temperature.")
      .def_ro("id", &TokenLogprob::id)
      .def_ro("logprob", &TokenLogprob::logprob)
      .def_ro("top", &TokenLogprob::top);
  nb::class_<Update>(
      m, "Update",
      "One token of one choice, or its end. Text is whole characters; what may begin a stop text is held "
      "back. `finish`: 'stop', 'length', 'cancelled', 'error', or '' while the choice goes on.")
      .def_ro("request", &Update::request)
      .def_ro("choice", &Update::choice)
      .def_ro("id", &Update::id)
      .def_ro("text", &Update::text)
      .def_ro("text_offset", &Update::text_offset)
      .def_ro("logprob", &Update::logprob)
      .def_ro("prompt", &Update::prompt)
      .def_ro("finish", &Update::finish)
      .def_ro("error_code", &Update::error_code)
      .def_ro("error", &Update::error)
      .def_ro("last", &Update::last)
      .def_ro("prompt_tokens", &Update::prompt_tokens)
      .def_ro("cached_tokens", &Update::cached_tokens)
      .def_ro("output_tokens", &Update::output_tokens);
  nb::class_<RunningRequest>(m, "RunningRequest", "A request that runs, without a word of what was said.")
      .def_ro("id", &RunningRequest::id)
      .def_ro("running", &RunningRequest::running)
      .def_ro("prompt_tokens", &RunningRequest::prompt_tokens)
      .def_ro("computed_tokens", &RunningRequest::computed_tokens)
      .def_ro("output_tokens", &RunningRequest::output_tokens)
      .def_ro("choices", &RunningRequest::choices)
      .def_ro("age_s", &RunningRequest::age_s);
  nb::class_<CachedPrefix>(m, "CachedPrefix", "A node of the prefix tree.")
      .def_ro("depth", &CachedPrefix::depth)
      .def_ro("tokens", &CachedPrefix::tokens)
      .def_ro("users", &CachedPrefix::users);
  nb::class_<EngineView>(m, "EngineView", "What runs in an engine, without a word of what was said.")
      .def_ro("requests", &EngineView::requests)
      .def_ro("prefixes", &EngineView::prefixes)
      .def_ro("step_s", &EngineView::step_s);
  nb::class_<Histogram>(m, "Histogram", "Seconds, in buckets whose upper ends grow by 2 from 1 ms.")
      .def_ro("counts", &Histogram::counts)
      .def_ro("count", &Histogram::count)
      .def_ro("sum", &Histogram::sum)
      .def_static("upper_end", &Histogram::upper_end, nb::arg("bucket"),
                  "Seconds: bucket i counts what took up to 0.001 * 2^i.");
  nb::class_<EngineStats>(m, "EngineStats", "Counts since the engine was made.")
      .def_ro("requests_running", &EngineStats::requests_running)
      .def_ro("requests_waiting", &EngineStats::requests_waiting)
      .def_ro("tokens_waiting", &EngineStats::tokens_waiting)
      .def_ro("pages", &EngineStats::pages)
      .def_ro("pages_free", &EngineStats::pages_free)
      .def_ro("pages_cached", &EngineStats::pages_cached)
      .def_ro("pages_evictable", &EngineStats::pages_evictable)
      .def_ro("steps", &EngineStats::steps)
      .def_ro("prompt_tokens", &EngineStats::prompt_tokens)
      .def_ro("prompt_tokens_computed", &EngineStats::prompt_tokens_computed)
      .def_ro("output_tokens", &EngineStats::output_tokens)
      .def_ro("requests_finished", &EngineStats::requests_finished)
      .def_ro("requests_cancelled", &EngineStats::requests_cancelled)
      .def_ro("requests_failed", &EngineStats::requests_failed)
      .def_ro("requests_refused", &EngineStats::requests_refused)
      .def_ro("preemptions", &EngineStats::preemptions)
      .def_ro("time_to_first_token", &EngineStats::time_to_first_token)
      .def_ro("token_gap", &EngineStats::token_gap)
      .def_ro("queue", &EngineStats::queue)
      .def_ro("step", &EngineStats::step);
}

// Everything that may wait for a step does so without the GIL, which the step's callbacks take.
void define_engine(nb::module_& m) {
  nb::class_<PyEngine>(
      m, "Engine",
      "Answers many requests at once over one paged cache. submit, cancel, pause and stats may be called "
      "from any thread; step and run from one at a time.")
      .def(
          "__init__",
          [](PyEngine* self, std::shared_ptr<ModelFile> file, std::shared_ptr<Tokenizer> tokenizer, Precision precision,
             const DeviceLike& device, int page_size, std::optional<DType> kv_dtype, StepForm step,
             std::shared_ptr<WorkerTeam> team, const std::optional<OnLoad>& on_load, int64_t kv_tokens, int max_running,
             int64_t max_step_rows, double target_itl_s, int64_t max_queued, int64_t max_queued_tokens,
             int64_t context) {
            const ForwardOptions plain;
            const PyForwardOptions forward = forward_options(
                precision, device_of(device), plain.max_tokens, plain.max_sequences, page_size, plain.max_rows,
                kv_dtype, plain.plan_mode, plain.fixed_split_size, step, plain.levels, std::move(team), on_load);
            const EngineOptions options{.forward = forward.options,
                                        .kv_tokens = kv_tokens,
                                        .max_running = max_running,
                                        .max_step_rows = max_step_rows,
                                        .target_itl_s = target_itl_s,
                                        .max_queued = max_queued,
                                        .max_queued_tokens = max_queued_tokens,
                                        .context = context};
            std::optional<Engine> made;
            {
              const WithoutGil free;
              made.emplace(*file, *tokenizer, options);
            }
            forward.rethrow();
            new (self) PyEngine{std::move(file), std::move(tokenizer), forward.team, std::move(*made)};
          },
          nb::arg("file"), nb::arg("tokenizer"), nb::kw_only(), nb::arg("precision") = Precision::standard,
          nb::arg("device") = "cpu", nb::arg("page_size") = 16, nb::arg("kv_dtype") = nb::none(),
          nb::arg("step") = StepForm::layered, nb::arg("team") = nb::none(), nb::arg("on_load") = nb::none(),
          nb::arg("kv_tokens") = 0, nb::arg("max_running") = 64, nb::arg("max_step_rows") = 512,
          nb::arg("target_itl_s") = 0.12, nb::arg("max_queued") = 256, nb::arg("max_queued_tokens") = 1 << 20,
          nb::arg("context") = 0,
          "Loads the model. kv_tokens: of the page pool; 0: half of what the device has left. target_itl_s: the gap "
          "between tokens that prefill keeps to while others decode. context 0: the model's own.")
      .def(
          "submit",
          [](PyEngine& self, Request request, nb::callable on_update) {
            const Callback callback(std::move(on_update));
            const WithoutGil free;
            return self.engine.submit(std::move(request), [callback](const Update& update) {
              const WithGil gil;
              if (gil) callback.call_unasked(nb::cast(update, nb::rv_policy::copy));
            });
          },
          nb::arg("request"), nb::arg("on_update"),
          "on_update(weft.serve.Update) is called by the thread that steps; what it raises goes to "
          "sys.unraisablehook. Returns the request's number. Raises Error(invalid_argument | invalid_token | "
          "context_full | unsupported) for a request that can never run, and Error(queue_full) for one that has to "
          "come "
          "again later.",
          nb::sig("def submit(self, request: Request, on_update: collections.abc.Callable[[Update], object]) -> int"))
      .def(
          "cancel",
          [](PyEngine& self, RequestId request) {
            const WithoutGil free;
            self.engine.cancel(request);
          },
          nb::arg("request"), "Ends a request, whose last update says so; an unknown one is over already.")
      .def(
          "pause",
          [](PyEngine& self, RequestId request, bool paused) {
            const WithoutGil free;
            self.engine.pause(request, paused);
          },
          nb::arg("request"), nb::arg("paused"), "A paused request keeps its pages and makes no tokens.")
      .def(
          "step",
          [](PyEngine& self) {
            const WithoutGil free;
            return self.engine.step();
          },
          "One step: schedule, run, postprocess. False where there is nothing to do.")
      .def(
          "run",
          [](PyEngine& self) {
            const WithoutGil free;
            self.engine.run();
          },
          "Steps until stop(), in a thread of the caller's.")
      .def(
          "stop",
          [](PyEngine& self) {
            const WithoutGil free;
            self.engine.stop();
          },
          "Makes run() return. From any thread.")
      .def_prop_ro("context", [](PyEngine& self) { return self.engine.context(); })
      .def_prop_ro("step_form", [](PyEngine& self) { return self.engine.step_form(); })
      .def(
          "stats",
          [](PyEngine& self) {
            const WithoutGil free;
            return self.engine.stats();
          },
          "Counts and times so far. From any thread.")
      .def(
          "view",
          [](PyEngine& self) {
            const WithoutGil free;
            return self.engine.view();
          },
          "What runs and what is cached now. From any thread.")
      .def(
          "check_queue",
          [](PyEngine& self) {
            const WithoutGil free;
            self.engine.check_queue();
          },
          "Raises Error(queue_full) where submit would, whatever the request.");
}

}  // namespace

void define_serving(nb::module_& m) {
  nb::module_ all = m.def_submodule("serve", "An engine that answers many requests at once, without HTTP.");
  bind_struct<Request>(
      all, "Request",
      "What is asked of the model: prompt, token ids. max_tokens -1: what the context holds. `n` choices "
      "share the prompt. logprobs -1: none. priority -100 to 100. max_queue_s, max_total_s 0: never.");
  define_updates(all);
  define_engine(all);
}

}  // namespace weft::python
