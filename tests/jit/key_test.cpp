#include "jit/key.h"

#include <gtest/gtest.h>

#include <set>

#include "jit/host/module.h"

namespace weft::jit {
namespace {

Request sample_request() {
  return {.name = "leaf", .text = "int x;", .target = host_target(Isa::avx2), .flags = {"-DA"}};
}

std::string key_of(const Request& request, std::string_view identity = "gcc") {
  return entry_key(request_id(request), identity);
}

TEST(Key, HasTheFormOfASha256) {
  EXPECT_TRUE(is_key(key_of(sample_request())));
  EXPECT_FALSE(is_key("publish-" + key_of(sample_request())));
  EXPECT_FALSE(is_key(std::string(64, 'G')));
}

TEST(Key, DependsOnNothingButTheRequestAndTheCompiler) {
  EXPECT_EQ(key_of(sample_request()), key_of(sample_request()));
}

TEST(Key, DoesNotDependOnTheNameForPeople) {
  Request renamed = sample_request();
  renamed.name = "another";
  EXPECT_EQ(key_of(renamed), key_of(sample_request()));
  EXPECT_EQ(memory_hash(renamed), memory_hash(sample_request()));
}

TEST(Key, ChangesWithWhateverChangesTheCode) {
  std::set<std::string> keys = {key_of(sample_request()), key_of(sample_request(), "clang")};
  std::set<uint64_t> hashes = {memory_hash(sample_request())};
  auto add = [&](auto&& change) {
    Request request = sample_request();
    change(request);
    keys.insert(key_of(request));
    hashes.insert(memory_hash(request));
  };
  add([](Request& r) { r.text += " "; });
  add([](Request& r) { r.target = host_target(Isa::plain); });
  add([](Request& r) { r.target = host_target(Isa::avx512); });
  add([](Request& r) { r.flags = {}; });
  add([](Request& r) { r.flags = {"-DB"}; });
  add([](Request& r) { r.flags = {"-DA", "-DB"}; });
  add([](Request& r) { r.flags = {"-DB", "-DA"}; });
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_EQ(hashes.size(), 8u);
}

TEST(Key, DoesNotLetOneFieldRunIntoTheNext) {
  Request joined = sample_request(), apart = sample_request();
  joined.flags = {"-DAB"};
  apart.flags = {"-DA", "B"};
  EXPECT_NE(key_of(joined), key_of(apart));
  joined.flags = {"-D", "1:A"};
  apart.flags = {"-D1:A"};
  EXPECT_NE(key_of(joined), key_of(apart));
}

TEST(Key, SeesEveryByteOfALongText) {
  Request request = sample_request();
  request.text.assign(300, 'x');
  std::set<uint64_t> hashes = {memory_hash(request)};
  for (size_t i = 0; i < request.text.size(); ++i) {
    Request changed = request;
    changed.text[i] = 'y';
    hashes.insert(memory_hash(changed));
  }
  EXPECT_EQ(hashes.size(), 301u);
}

TEST(Flags, AreExplicitAndKeepTheMathExact) {
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    Request request = sample_request();
    request.target = host_target(isa);
    const RequestId id = request_id(request);
    const std::set<std::string> flags(id.flags.begin(), id.flags.end());
    constexpr bool kSanitized = WEFT_SANITIZE[0] != '\0';
    EXPECT_TRUE(flags.contains(kSanitized ? "-O1" : "-O3"));
    for (const char* wanted : {"-nostdlib", "-fno-trapping-math", "-fvisibility=hidden", "-DA"})
      EXPECT_TRUE(flags.contains(wanted)) << wanted;
    for (const char* never : {"-march=native", "-ffast-math", "-Ofast"}) EXPECT_FALSE(flags.contains(never)) << never;
    EXPECT_EQ(flags.contains("-mavx2"), isa != Isa::plain);
    EXPECT_EQ(flags.contains("-fsanitize=" WEFT_SANITIZE), kSanitized);
  }
}

}  // namespace
}  // namespace weft::jit
