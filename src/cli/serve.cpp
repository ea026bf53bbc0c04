// `weft serve`: answers many people at once, over HTTP as OpenAI's clients speak it.
#include "weft/serve.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "decode/conversation.h"
#include "serve/http/access.h"
#include "serve/http/json.h"
#include "serve/http/server.h"

namespace weft::cli {
namespace {

struct ServeOptions {
  ModelOptions model;
  serve::http::ServerOptions http;
  serve::EngineOptions engine;
  int64_t target_itl_ms = 120;
  std::string api_key_file, model_name;
  bool log_json = false, no_levels = false;
};

// One key a line; what begins with # is a comment.
std::vector<std::string> read_keys(const std::string& path) {
  std::ifstream file(path);
  check(file.good(), ErrorCode::io_error, "--api-key-file {}: it cannot be read", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  check(!keys.empty(), ErrorCode::invalid_argument, "--api-key-file {}: it holds no key; one a line is needed", path);
  return keys;
}

void check_options(ServeOptions& options) {
  check_model_options(options.model);
  serve::http::ServerOptions& http = options.http;
  if (!options.api_key_file.empty()) http.api_keys = read_keys(options.api_key_file);
  serve::http::check_options(http);
  serve::http::check_descriptors();
  check(!http.unix_socket.empty() || serve::http::is_loopback(http.host) || !http.api_keys.empty(),
        ErrorCode::invalid_argument, "--host {}: others can reach it; a key is needed: give --api-key-file", http.host);
}

serve::EngineOptions engine_options(const ServeOptions& options, WorkerTeam* team, Progress& progress) {
  serve::EngineOptions engine = options.engine;
  engine.context = options.model.ctx;
  engine.target_itl_s = static_cast<double>(options.target_itl_ms) / 1000;
  engine.max_step_rows = std::max<int64_t>(512, engine.max_running);
  engine.forward.device = device_of(options.model.device);
  engine.forward.precision = precision_from_string(options.model.precision);
  engine.forward.step = step_form_from_string(options.model.step);
  engine.forward.step_ctas = options.model.step_ctas;
  if (options.model.kv_dtype != "auto") engine.forward.kv_dtype = dtype_from_string(options.model.kv_dtype);
  engine.forward.team = team;
  engine.forward.levels = !options.no_levels;
  engine.forward.on_load = [&progress](double fraction) { progress.set(fraction); };
  return engine;
}

// Steps in a thread of its own; what it throws ends the server.
class EngineThread {
 public:
  EngineThread(serve::Engine& engine, serve::http::Server& server)
      : engine_(engine), thread_([this, &server] {
          try {
            engine_.run();
          } catch (...) {
            failure_ = std::current_exception();
            server.stop();
            server.stop();  // at once: nothing answers any more
          }
        }) {}
  ~EngineThread() {
    engine_.stop();
    if (thread_.joinable()) thread_.join();
  }
  void finish() {
    engine_.stop();
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  serve::Engine& engine_;
  std::exception_ptr failure_;
  std::thread thread_;
};

// Completions need none, so a server without one is a server. `refused`: why chats are, or empty.
std::optional<ChatTemplate> read_template(const ModelFile& file, const Tokenizer& tokenizer, std::string& refused) {
  std::optional<ChatTemplate> chat_template;
  if (!file.has("tokenizer.chat_template")) {
    refused = "the model has no chat template";
    return chat_template;
  }
  try {
    chat_template.emplace(file.get_string("tokenizer.chat_template"));
    decode::Conversation conversation(tokenizer, *chat_template);
    conversation.add("user", "Hello");
    conversation.tokens();
  } catch (const Error& error) {
    refused = "the model's chat template: " + one_line(error.what());
  }
  return chat_template;
}

// Nobody may read stdout, and still the server is asked: it says on stderr what stdout does not take.
void say_listening(const nlohmann::json& line) {
  try {
    write_line(serve::http::dump(line), {});
  } catch (const Error& error) {
    log::warn("{}; listening on {}", error.what(), line.at("url").get<std::string>());
  }
}

void serve_model(ServeOptions options) {
  check_options(options);
  const ModelFile file = from_file([&] { return ModelFile(options.model.model); });
  const Tokenizer tokenizer = from_file([&] { return Tokenizer(file); });
  std::string chats_refused;
  const std::optional<ChatTemplate> chat_template = read_template(file, tokenizer, chats_refused);
  std::unique_ptr<WorkerTeam> team;
  if (options.model.threads > 0) team = std::make_unique<WorkerTeam>(options.model.threads);

  Progress progress("loading " + file.path());
  serve::Engine engine(file, tokenizer, engine_options(options, team.get(), progress));
  progress.done();
  say_step_form(engine.step_form());

  serve::http::ServerOptions http = options.http;
  http.model_name =
      options.model_name.empty() ? std::filesystem::path(file.path()).stem().string() : options.model_name;
  http.default_sampling = from_file([&] { return sampling_defaults(file); });
  http.reproducible = options.model.invariant;
  if (options.log_json) http.log = write_line;
  serve::http::Service service(engine, tokenizer, chat_template ? &*chat_template : nullptr, http);
  serve::http::Server server(service, http);
  EngineThread thread(engine, server);
  if (!chats_refused.empty())
    log::warn("{}; /v1/chat/completions and the page refuse messages, /v1/completions answers", chats_refused);
  say_listening(
      {{"event", "listening"}, {"url", server.url()}, {"model", http.model_name}, {"context", engine.context()}});
  server.run();
  thread.finish();
}

void add_limits(Verb& verb, serve::http::Limits& limits, serve::EngineOptions& engine) {
  verb.option("--max-connections", limits.connections, "Connections at once").range(1, 65536);
  verb.bytes("--max-header", limits.header_bytes, "Bytes of a request's header");
  verb.bytes("--max-body", limits.body_bytes, "Bytes of a request's body");
  verb.bytes("--max-waiting-bytes", limits.waiting_bytes, "Bytes of a key's bodies that wait to be read");
  verb.seconds("--header-time", limits.header_s, "Time to send the header");
  verb.seconds("--body-time", limits.body_s, "Time to send the body");
  verb.seconds("--idle-time", limits.idle_s, "Time between two requests of a connection");
  verb.option("--max-json-depth", limits.json_depth, "Levels of a body's JSON").range(1, 1000);
  verb.option("--max-prompt-tokens", limits.prompt_tokens, "Tokens of a prompt; 0: what the context holds")
      .allows("0 (the context) and more", [](double tokens) { return tokens >= 0; });
  verb.option("--max-n", limits.n, "Choices of a request").range(1, 64);
  verb.option("--max-queued", engine.max_queued, "Requests that wait; beyond it they get status 429").range(1, 1000000);
  verb.option("--max-queued-tokens", engine.max_queued_tokens, "Prompt tokens of requests that wait")
      .range(1, int64_t{1} << 40);
  verb.seconds("--queue-time", limits.queue_s, "Time that a request waits to begin");
  verb.seconds("--request-time", limits.request_s, "Time of a request in all");
  verb.bytes("--max-unread", limits.unread_bytes, "Bytes that a client leaves unread before its answer pauses");
  verb.seconds("--unread-time", limits.unread_s, "Time that a client may read nothing before its connection ends");
}

}  // namespace

void add_serve(Program& program, Context&) {
  Verb verb = program.verb("serve", "Answer many at once, over HTTP as OpenAI's clients speak it");
  auto options = std::make_shared<ServeOptions>();
  add_model_options(verb, options->model, "the model's own");
  verb.option("--host", options->http.host, "Address to listen on; another than loopback needs --api-key-file")
      .filled();
  verb.option("--port", options->http.port, "Port to listen on; 0: any free one").range(0, 65535);
  verb.option("--unix-socket", options->http.unix_socket, "A socket file to listen on instead").filled();
  verb.option("--host-name", options->http.host_names, "Further names of this server that a Host header may have")
      .filled();
  verb.option("--allow-origin", options->http.allowed_origins,
              "Origins of pages elsewhere that may ask, such as https://example.org; *: any");
  verb.option("--api-key-file", options->api_key_file, "File with the keys that clients need, one a line").filled();
  verb.option("--model-name", options->model_name, "What clients call the model; default: the file's name").filled();
  verb.option("--alias", options->http.aliases,
              "Further names that clients may call the model by; \"*\": any, for clients that send one of their own")
      .filled();
  verb.flag("--strict", options->http.strict, "Fields that no request has are refused; else they are ignored");
  verb.option("--target-itl", options->target_itl_ms, "Milliseconds between tokens that prompts of others leave alone")
      .range(1, 60000);
  verb.option("--max-running", options->engine.max_running, "Choices that are answered at once").range(1, 512);
  verb.option("--kv-tokens", options->engine.kv_tokens,
              "Tokens that the KV cache holds; 0: half of the memory that is left")
      .allows("0 (automatic) and more", [](double tokens) { return tokens >= 0; });
  verb.seconds("--drain", options->http.drain_s, "Time that answers get to end after SIGTERM");
  verb.flag("--no-levels", options->no_levels,
            "What requests share is read by each of them: to see what reading it once for all is worth");
  verb.flag("--log-json", options->log_json, "A JSON object a request on stdout");
  add_limits(verb, options->http.limits, options->engine);
  verb.example("weft serve model.gguf --port 8080");
  verb.runs([options] { serve_model(*options); });
}

}  // namespace weft::cli
