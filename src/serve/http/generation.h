// One API request between the engine and its client.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "serve/http/api_answer.h"
#include "serve/http/exchange.h"
#include "serve/http/failure.h"

namespace weft::serve::http {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Figures {
    int status;
    double seconds, first_token_s;  // -1: none came
    int64_t prompt_tokens, cached_tokens, output_tokens;
  };
  using OnEnd = std::function<void(const Figures&)>;
  Generation(Engine& engine, std::shared_ptr<Exchange> exchange, OnEnd on_end);

  // The client may leave from now on.
  void watch();
  // Hands the requests to the engine. What is wrong with them, or with `read`, is the answer. `read` may take long: the
  // client may leave meanwhile.
  void start(const std::function<ApiRequest()>& read, const Tokenizer& tokenizer);

 private:
  bool over() const;
  void on_update(size_t index, const Update& update);
  void take(size_t index, const Update& update);
  void on_closed();
  void pause(bool paused);
  void fail(Failure failure);
  void finish();
  void end(int status);

  Engine& engine_;
  std::shared_ptr<Exchange> exchange_;
  OnEnd on_end_;
  mutable std::mutex mutex_;
  std::optional<ApiAnswer> answer_;
  std::vector<RequestId> ids_;
  size_t open_ = 0;                             // requests that go on
  std::map<std::string, std::string> written_;  // names of fields, as ApiRequest has them
  bool stream_ = false, streaming_ = false, over_ = false, stalled_ = false;
  Clock::time_point start_ = Clock::now();
  double first_token_s_ = -1;
};

}  // namespace weft::serve::http
