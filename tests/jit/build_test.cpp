#include <sys/stat.h>

#include <thread>

#include "jit/host/compile.h"
#include "jit/host/module.h"
#include "jit/key.h"
#include "support.h"

namespace weft::jit {
namespace {

using BuildTest = JitTest;

TEST_F(BuildTest, TakesTheCompilerThenMemoryThenDisk) {
  EXPECT_EQ(answer_of(load(request_of(41))), 41);
  EXPECT_EQ(origin_, Origin::compiler);
  EXPECT_EQ(answer_of(load(request_of(41))), 41);
  EXPECT_EQ(origin_, Origin::memory);
  EXPECT_EQ(build_elsewhere(text_of(41)).output, "disk 41\n");
  EXPECT_EQ(num_compiles(), 1);
}

TEST_F(BuildTest, GivesEveryRequestItsOwnModule) {
  const auto one = load(request_of(1)), two = load(request_of(2));
  EXPECT_EQ(answer_of(one), 1);
  EXPECT_EQ(answer_of(two), 2);
  Request renamed = request_of(1);
  renamed.name = "another name";
  EXPECT_EQ(load(renamed), one);
  Request flagged = request_of(1);
  flagged.flags = {"-DOTHER"};
  EXPECT_NE(load(flagged), one);
  EXPECT_EQ(num_compiles(), 3);
}

TEST_F(BuildTest, CompilesOnceForManyThreads) {
  std::vector<std::thread> threads;
  std::vector<int> answers(8);
  for (size_t i = 0; i < answers.size(); ++i)
    threads.emplace_back([&, i] { answers[i] = answer_of(host_module(request_of(i % 2 == 0 ? 70 : 71)).module); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], i % 2 == 0 ? 70 : 71);
  EXPECT_EQ(num_compiles(), 2);
}

TEST_F(BuildTest, PointsACompileErrorAtTheVariantsOwnLine) {
  Request request = request_of(0);
  request.name = "leaf cap_and_bias fp32 avx2";
  request.text =
      "namespace weft {}\n#line 1 \"variant CapAndBias\"\nstruct CapAndBias {\n  int f() { return missing; }\n};\n";
  const Error error = error_of([&] { load(request); });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(contains(error.what(), "leaf cap_and_bias fp32 avx2")) << error.what();
  EXPECT_TRUE(contains(error.what(), "variant CapAndBias:2:")) << error.what();
  EXPECT_TRUE(contains(error.what(), "missing")) << error.what();
  EXPECT_TRUE(contains(error.what(), ">   2 |   int f() { return missing; }")) << error.what();
  EXPECT_TRUE(names_in(cache_ + "/build").empty());
  EXPECT_TRUE(names_in(cache_ + "/modules").empty());
  request.text = text_of(5);  // and the next one works
  EXPECT_EQ(answer_of(load(request)), 5);
}

TEST_F(BuildTest, RefusesATextThatNeedsALibrary) {
  Request request = request_of(0);
  request.text =
      "extern \"C\" double cbrt(double); extern \"C\" int puts(const char*);\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) double f(double x) { puts(\"\"); return cbrt(x); }\n";
  const Error error = error_of([&] { load(request); });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(contains(error.what(), "cbrt")) << error.what();
  EXPECT_TRUE(contains(error.what(), "puts")) << error.what();
  EXPECT_TRUE(names_in(cache_ + "/modules").empty());
}

TEST_F(BuildTest, LetsTheCompilerCopyMemory) {
  Request request = request_of(0);
  request.text =
      "struct Big { int x[4096]; };\nextern \"C\" __attribute__((visibility(\"default\"))) void copy(Big* a, "
      "const Big* b) { *a = *b; }\n";
  const auto copy = reinterpret_cast<void (*)(void*, const void*)>(load(request)->symbol("copy"));
  ASSERT_NE(copy, nullptr);
  const std::vector<int> from(4096, 7);
  std::vector<int> to(4096);
  copy(to.data(), from.data());
  EXPECT_EQ(to, from);
}

TEST_F(BuildTest, StopsACompilerThatTakesTooLong) {
  const Compiler slow{make_compiler("slow", "exec sleep 30"), "slow 1", std::string(64, '0')};
  const Error error = error_of([&] {
    compile_host(slow, request_of(1), request_id(request_of(1)).flags, folder_, std::chrono::milliseconds{200});
  });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(contains(error.what(), "0.2 s")) << error.what();
}

TEST_F(BuildTest, TellsACompilerThatCrashes) {
  const ScopedEnv crash("WEFT_CXX", make_compiler("crash", "kill -SEGV $$").c_str());
  const Error error = error_of([&] { load(request_of(90)); });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(contains(error.what(), "signal 11")) << error.what();
}

TEST_F(BuildTest, NamesEveryCompilerItLookedForAndHowToInstallOne) {
  const ScopedEnv any("WEFT_CXX", nullptr), path("PATH", folder_.c_str());
  const Error error = error_of([&] { load(request_of(91)); });
  EXPECT_EQ(error.code(), ErrorCode::no_compiler);
  for (const char* part : {"g++ (not on PATH)", "c++ (", "clang++ (", "apt-get install g++"})
    EXPECT_TRUE(contains(error.what(), part)) << error.what();
  EXPECT_TRUE(host_compiler().path.empty());
}

TEST_F(BuildTest, TellsACompilerOfTheEnvironmentThatDoesNotRun) {
  const ScopedEnv missing("WEFT_CXX", "/nowhere/g++");
  const Error error = error_of([&] { load(request_of(92)); });
  EXPECT_EQ(error.code(), ErrorCode::no_compiler);
  EXPECT_TRUE(contains(error.what(), "WEFT_CXX=/nowhere/g++ (no such program)")) << error.what();
  const std::string broken = write("broken", "#!/bin/sh\necho sorry >&2; exit 9\n");
  chmod(broken.c_str(), 0700);
  const ScopedEnv failing("WEFT_CXX", broken.c_str());
  EXPECT_TRUE(contains(error_of([&] { load(request_of(92)); }).what(), "status 9 sorry"));
}

TEST_F(BuildTest, FindsTheAssemblerBesideTheCompilerWhateverPathSays) {
  const ScopedEnv real("WEFT_CXX", WEFT_TEST_CXX);
  int answer = 93;
  for (const std::string& folders : {std::string(), folder_, std::string("relative:"), std::string("/nowhere")}) {
    const ScopedEnv path("PATH", folders.c_str());
    const Built built = build_elsewhere(text_of(++answer));
    EXPECT_EQ(built.output, "compiler " + std::to_string(answer) + "\n") << folders << built.errors;
  }
}

TEST_F(BuildTest, NamesPathWhenTheCompilerFindsNoAssembler) {
  const ScopedEnv path("PATH", "/nowhere:relative");  // the compiler is a script in a folder without one
  const Error error = error_of([&] { load(request_of(97)); });
  EXPECT_EQ(error.code(), ErrorCode::no_compiler);
  for (const char* part : {"PATH", "/nowhere", folder_.c_str(), "binutils", "'answer 97'"})
    EXPECT_TRUE(contains(error.what(), part)) << part << ": " << error.what();
  EXPECT_FALSE(contains(error.what(), "relative")) << error.what();
}

TEST_F(BuildTest, FindsADiskEntryWithoutAnyCompiler) {
  ASSERT_EQ(build_elsewhere(text_of(42)).output, "compiler 42\n");
  const ScopedEnv none("WEFT_CXX", "none");
  EXPECT_EQ(answer_of(load(request_of(42))), 42);
  EXPECT_EQ(origin_, Origin::disk);
  const Error error = error_of([&] { load(request_of(43)); });
  EXPECT_EQ(error.code(), ErrorCode::no_compiler);
  EXPECT_TRUE(contains(error.what(), "WEFT_CXX=none")) << error.what();
}

TEST_F(BuildTest, HidesWhatAModuleDoesNotExport) {
  Request request = request_of(6);
  request.text += "extern \"C\" int inner() { return 1; }\n";
  EXPECT_EQ(load(request)->symbol("inner"), nullptr);
}

TEST_F(BuildTest, CompilesWithTheSanitizersOfThisBuild) {
  Request request = request_of(0);
  request.text += "extern \"C\" __attribute__((visibility(\"default\"))) void put(int* p, int x) { *p = 2 * x; }\n";
  load(request);
  const std::string module = object(list().at(0).key);
  constexpr std::string_view kSanitizers = WEFT_SANITIZE;
  EXPECT_EQ(contains(module, "__asan_store4"), contains(kSanitizers, "address"));
  EXPECT_EQ(contains(module, "__ubsan_handle_mul_overflow"), contains(kSanitizers, "undefined"));
  EXPECT_EQ(contains(module, "__tsan_write4"), contains(kSanitizers, "thread"));
}

TEST_F(BuildTest, KnowsTheRealCompilerByItsContentAndRemembersIt) {
  const ScopedEnv real("WEFT_CXX", WEFT_TEST_CXX);
  const Compiler first = host_compiler();
  EXPECT_EQ(first.path, WEFT_TEST_CXX);
  EXPECT_EQ(first.identity.size(), 64u);
  EXPECT_FALSE(first.version.empty());
  const auto records = names_in(cache_ + "/stamps");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(contains(read(cache_ + "/stamps/" + records[0]), first.identity));
  EXPECT_EQ(&host_compiler(), &host_compiler());
}

TEST_F(BuildTest, SeesThatACompilerWasReplaced) {
  const std::string path = make_compiler("replaced");
  const ScopedEnv wanted("WEFT_CXX", path.c_str());
  const std::string before = host_compiler().identity;
  make_compiler("replaced", ": a newer one");
  EXPECT_NE(host_compiler().identity, before);
}

TEST_F(BuildTest, SeesThatTheProgramThatDoesTheWorkWasReplaced) {
  const std::string worker = write("cc1plus", "old");
  const std::string path = write("driver", "#!/bin/sh\ncase \"$*\" in\n  -print-prog-name*) echo " + worker +
                                               "; exit 0;;\nesac\nexec " WEFT_TEST_CXX " \"$@\"\n");
  chmod(path.c_str(), 0700);
  const ScopedEnv wanted("WEFT_CXX", path.c_str());
  const std::string before = host_compiler().identity;
  EXPECT_EQ(host_compiler().identity, before);
  write("cc1plus", "a newer one");
  EXPECT_NE(host_compiler().identity, before);
}

TEST_F(BuildTest, GivesTheSameIdentityToTheSameCompilerElsewhere) {
  std::string identities[2];
  for (int i = 0; i < 2; ++i) {
    const std::string path = make_compiler("copy" + std::to_string(i));
    const ScopedEnv wanted("WEFT_CXX", path.c_str());
    identities[i] = host_compiler().identity;
  }
  EXPECT_EQ(identities[0], identities[1]);
}

}  // namespace
}  // namespace weft::jit
