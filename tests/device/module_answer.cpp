// Compiled twice, with two answers.
namespace {
int calls = 0;
}
extern "C" int answer() { return ANSWER; }
extern "C" int count_calls() { return ++calls; }
