#include "tests/sparse/random/card_run.h"

#include <algorithm>
#include <map>

#include "tests/sparse/cuda/card_run.h"
#include "weft/error.h"

namespace weft::sparse::random {
namespace {

constexpr size_t kMargin = 256;  // bytes before and behind a tensor
constexpr char kUntouched = '\x5a';

// A tensor of the card between two margins.
class Guarded {
 public:
  explicit Guarded(const TensorView& host)
      : begin_(host.size() * bits_of(host.dtype()) / 8 + 2 * kMargin, kUntouched),
        bytes_(begin_),
        there_({bytes_.data(), DType::uint8, {static_cast<int64_t>(bytes_.size())}}),
        view_(static_cast<char*>(there_.view().data()) + kMargin, host.dtype(), host.shape(), Device::cuda()) {
    std::copy_n(static_cast<const char*>(host.data()), begin_.size() - 2 * kMargin, begin_.data() + kMargin);
  }
  const TensorView& view() const { return view_; }
  // What it holds at the beginning of a run.
  void restore() {
    std::copy(begin_.begin(), begin_.end(), bytes_.begin());
    there_.send();
  }
  // Its bytes after a run, with the margins.
  const std::vector<char>& fetched() const {
    there_.fetch();
    return bytes_;
  }

 private:
  std::vector<char> begin_, bytes_;
  test::OnCard there_;
  TensorView view_;
};

bool is_untouched(const std::vector<char>& bytes) {
  const auto is_kept = [](char byte) { return byte == kUntouched; };
  return std::all_of(bytes.begin(), bytes.begin() + kMargin, is_kept) &&
         std::all_of(bytes.end() - kMargin, bytes.end(), is_kept);
}

// The error of a run that a program may have: a division by 0, or a write where nothing is stored.
std::string error_of_run(const Operator& op, const RunArguments& arguments) {
  try {
    op.run(arguments, Stream::cuda(nullptr));
    Stream::cuda(nullptr).synchronize();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::device_failed) throw;
    return error.what();
  }
  return {};
}

Problem run_case(const Case& c, const Operator& op) {
  const Results want = results_of(c.program);
  const Inputs inputs(c.program);
  RunArguments arguments = inputs.arguments();
  std::map<std::string, Guarded> tensors;
  for (auto& [name, tensor] : arguments.buffers) tensor = tensors.try_emplace(name, tensor).first->second.view();
  std::map<std::string, std::vector<char>> first;
  for (const bool again : {false, true}) {
    for (auto& [name, tensor] : tensors) tensor.restore();
    const std::string said = error_of_run(op, arguments);
    if (Problem problem = failure_problem(c, want, said)) return problem;
    for (const auto& [name, tensor] : tensors) {
      const std::vector<char>& bytes = tensor.fetched();
      if (!is_untouched(bytes)) return {"wrong", "a thread wrote beside " + name};
      if (again && !c.has("atomic") && bytes != first.at(name)) return {"wrong", "two runs differ in " + name};
      first[name] = bytes;
    }
    for (const auto& [buffer, values] : want.values) {
      const auto made = first.find(buffer);
      if (made == first.end()) continue;  // the program does not name it
      const std::vector<double> got =
          numbers_of(made->second.data() + kMargin, values.size(), c.program.buffer(buffer).dtype);
      if (const std::string text = difference(buffer, got, values); !text.empty()) return {"wrong", text};
    }
  }
  return {};
}

}  // namespace

Problem on_card(const Case& c) {
  return tried([&]() -> Problem {
    const Operator op = compile(parse(to_text(c.program)), c.schedule(), Device::cuda(),
                                {.set = c.program.params_that_are(true), .set_reals = c.program.reals_that_are(true)});
    try {
      return run_case(c, op);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::device_failed) throw;
      return {"lost card", error.what()};
    }
  });
}

}  // namespace weft::sparse::random
