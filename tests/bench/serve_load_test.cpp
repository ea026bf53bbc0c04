// Traces, prompts, and the client against a server that says what it is told to.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "bench/serve/client.h"
#include "bench/serve/trace.h"
#include "bench/stop.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

TEST(Trace, ReadsTablesAndJsonLines) {
  const auto table = parse_trace("trace.csv", "arrival_ms,prompt_tokens,output_tokens\n500,374,44\n1500.5,10,1\n");
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].at_s, 0);
  EXPECT_DOUBLE_EQ(table[1].at_s, 1.0005);
  EXPECT_EQ(table[0].prompt_tokens, 374);
  const auto lines =
      parse_trace("trace.jsonl", R"({"timestamp":0,"input_length":33,"output_length":5,"hash_ids":[0,1,2]})"
                                 "\n"
                                 R"({"timestamp":2000,"input_length":30,"output_length":5,"hash_ids":[0,7]})");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].blocks, (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(lines[0].block_tokens, 16);
}

TEST(Trace, RefusesABadLineByItsNumber) {
  for (const char* bad : {"1,2,3\nx\n", "1,2,3\n4,5\n", "1,2,3\n4,0,5\n", "1,2,3\n{\"timestamp\":1}\n"}) {
    try {
      parse_trace("bad.csv", bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_file);
      EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(parse_trace("empty.csv", ""), Error);
}

TEST(Trace, GivesPromptsThatShareWhatTheirBlocksShare) {
  const Arrival first{.prompt_tokens = 40, .blocks = {1, 2}, .block_tokens = 16};
  const Arrival second{.prompt_tokens = 40, .blocks = {1, 3}, .block_tokens = 16};
  const auto a = prompt_of(first, 0, 1000), b = prompt_of(second, 1, 1000);
  ASSERT_EQ(a.size(), 40u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 16, b.begin()));
  EXPECT_NE(a[16], b[16]);
  EXPECT_EQ(prompt_of(first, 0, 1000), a);
  for (const int32_t id : a) EXPECT_TRUE(id >= 3 && id < 1000);
}

TEST(Trace, IsShaped) {
  auto arrivals = poisson(
      {.requests = 100, .per_second = 10, .last_per_second = 10, .prompt_tokens = 320, .output_tokens = 64, .seed = 7});
  EXPECT_NEAR(arrivals.back().at_s, 10, 4);
  shape(arrivals, {.requests = 50, .speed = 2, .divide = 4, .most_prompt = 70});
  ASSERT_EQ(arrivals.size(), 50u);
  EXPECT_EQ(arrivals[3].prompt_tokens, 70);
  EXPECT_EQ(arrivals[3].output_tokens, 16);
}

TEST(Trace, GrowsTheRateOfARamp) {
  const auto arrivals = poisson({.requests = 2000, .per_second = 1, .last_per_second = 100});
  const double first = arrivals[200].at_s, last = arrivals[1999].at_s - arrivals[1799].at_s;
  EXPECT_GT(first, 10 * last) << "of a tenth of the requests each";
}

TEST(Trace, DrawsWhatServeGensClientsSay) {
  const std::string client =
      R"({"client":1,"arrivals":[[0,0,0,"",0,0],[600,20,3,"Weibull",0.5,1],[1200,5,1,"Gamma",1,0.2]],)"
      R"("length_pmf_by_window_s":{"0":{"input_tokens":[[7,9],[0.5,0.5]],"output_tokens":[[3],[1]]}}})";
  const auto all = parse_trace("servegen.jsonl", client + "\n");
  const auto quiet = std::count_if(all.begin(), all.end(), [](const Arrival& a) { return a.at_s > 600; });
  EXPECT_NEAR(static_cast<double>(quiet), 3000, 400);
  EXPECT_NEAR(static_cast<double>(all.size()), 15000, 2500);
  for (const Arrival& arrival : all) {
    ASSERT_TRUE(arrival.prompt_tokens == 7 || arrival.prompt_tokens == 9);
    ASSERT_EQ(arrival.output_tokens, 3);
  }
  EXPECT_EQ(parse_trace("servegen.jsonl", client + "\n" + client, 50).size(), 100u) << "of each client";
  EXPECT_THROW(parse_trace("servegen.jsonl", R"({"arrivals":[],"length_pmf_by_window_s":{}})"), Error);
  EXPECT_THROW(
      parse_trace("servegen.jsonl", R"({"arrivals":[[0,1,1,"Pareto",1,1]],"length_pmf_by_window_s":{"0":{}}})"), Error);
}

TEST(LoadClient, ReadsUrls) {
  EXPECT_EQ(parse_url("http://127.0.0.1:80/").port, "80");
  for (const char* bad : {"", "127.0.0.1:80", "https://a:1", "http://a", "http://:1", "http://a:x"})
    EXPECT_THROW(parse_url(bad), Error) << bad;
}

// Answers each connection with what it holds, byte by byte where that is asked for, and ends it.
class Saying {
 public:
  explicit Saying(std::vector<std::string> answers) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
    listen(fd_, 16);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        const int client = accept(fd_, nullptr, nullptr);
        char buffer[65536];
        (void)!recv(client, buffer, sizeof buffer, 0);
        for (size_t at = 0; at < answer.size(); at += 7)
          (void)!send(client, answer.data() + at, std::min<size_t>(7, answer.size() - at), MSG_NOSIGNAL);
        close(client);
      }
    });
  }
  ~Saying() {
    thread_.join();
    close(fd_);
  }
  Url url() const { return {"127.0.0.1", std::to_string(port_)}; }

 private:
  int fd_ = -1, port_ = 0;
  std::thread thread_;
};

std::string chunk(const std::string& text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); }

TEST(LoadClient, CountsTokensOfAStreamHoweverItsBytesArrive) {
  const std::string models = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
  const std::string stream =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("data: {\"choices\":[{\"text\":\"a\"}]}\n\n") +
      chunk("data: {\"choices\":[{\"text\":\"b\"}]}\n\n") +
      chunk("data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\n") + chunk("data: [DONE]\n\n") + chunk("");
  const std::string refused = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}";
  const Saying server({models, stream, refused, ""});
  const auto got = play(server.url(), {{0, "{}"}, {0.05, "{}"}, {0.1, "{}"}}, "");
  EXPECT_TRUE(got[0].complete);
  EXPECT_EQ(got[0].tokens, 7);
  EXPECT_GE(got[0].first, got[0].sent);
  EXPECT_EQ(got[1].status, 429);
  EXPECT_FALSE(got[1].complete);
  EXPECT_EQ(got[2].status, 0);
}

TEST(LoadClient, LeavesWhenItIsTold) {
  const std::string models = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
  std::string stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 50; ++i) stream += chunk("data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
  const Saying server({models, stream, stream, ""});
  const auto got = play(server.url(),
                        {{0, "{}", {Leave::When::reading, 3}},
                         {0.1, "{}", {Leave::When::sending, 0.5}},
                         {0.2, "{}", {Leave::When::waiting, 0.}}},
                        "");
  for (const Outcome& outcome : got) EXPECT_TRUE(outcome.left && !outcome.complete);
  EXPECT_GE(got[0].tokens, 3);
  EXPECT_EQ(got[2].tokens, 0);
}

TEST(LoadClient, CountsNoTokenForAnEndThatComesAlone) {
  const std::string models = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
  const std::string stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
                             chunk("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n") +
                             chunk("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n") +
                             chunk("data: [DONE]\n\n") + chunk("");
  const Saying server({models, stream});
  const auto got = play(server.url(), {{0, "{}"}}, "");
  EXPECT_TRUE(got[0].complete);
  EXPECT_EQ(got[0].tokens, 1);
  EXPECT_TRUE(got[0].gaps.empty());
}

TEST(LoadClient, KeepsWhatCameWhenTheTimeIsOverOrItIsStopped) {
  const std::string models = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
  const std::string stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
                             chunk("data: {\"choices\":[{\"text\":\"a\"}]}\n\n") + chunk("data: [DONE]\n\n") +
                             chunk("");
  const std::vector<Ask> asks{{0, "{}"}, {3600, "{}"}};
  const Saying server({models, stream});
  const auto got = play(server.url(), asks, "", {.limit_s = 0.5});
  EXPECT_TRUE(got[0].complete);
  EXPECT_FALSE(got[1].complete);
  EXPECT_EQ(got[1].sent, -1);
  EXPECT_EQ(got[1].scheduled, 3600);

  stop_when([] { return true; });
  const Saying other({models});
  EXPECT_EQ(play(other.url(), asks, "")[0].sent, -1);
  stop_when(nullptr);
}

TEST(LoadClient, GivesUpOnceMoreThanATenthWaitedTooLong) {
  const std::string models = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
  std::vector<Ask> asks(20, {3600, "{}"});
  const auto ends = [&](double limit_s) {
    const Saying server({models});  // and no more
    return play(server.url(), asks, "", {.limit_s = limit_s, .first_token_s = 0.1})[0].end;
  };
  asks[0].at_s = asks[1].at_s = 0;
  EXPECT_GT(ends(1), 0.5) << "two of twenty may be late";
  asks[2].at_s = 0;
  EXPECT_LT(ends(30), 29);
}

TEST(LoadClient, SaysThatNobodyListens) { EXPECT_THROW(play({"127.0.0.1", "1"}, {}, ""), Error); }

}  // namespace
}  // namespace weft::bench
