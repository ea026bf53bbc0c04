#include "tests/sparse/cuda/card_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "loop/ir.h"
#include "sparse/check.h"
#include "sparse/operator.h"
#include "tests/sparse/refusals.h"

namespace weft::sparse::test {
namespace {

size_t bytes_of(const TensorView& tensor) {
  return static_cast<size_t>(tensor.size()) * static_cast<size_t>(bits_of(tensor.dtype())) / 8;
}

}  // namespace

OnCard::OnCard(const TensorView& host) : host_(host), memory_(Device::cuda(), std::max<size_t>(bytes_of(host), 16)) {
  view_ = TensorView(memory_.data(), host.dtype(), host.shape(), Device::cuda());
  send();
}

void OnCard::send() const {
  cuda::Card& card = cuda::Card::at(0);
  cuda::copy_to_card(card, memory_.data(), host_.data(), bytes_of(host_), nullptr);
  cuda::synchronize(card, nullptr);
}

void OnCard::fetch() const {
  cuda::Card& card = cuda::Card::at(0);
  cuda::copy_to_host(card, host_.data(), memory_.data(), bytes_of(host_), nullptr);
  cuda::synchronize(card, nullptr);
}

CardRun::CardRun(const Operator& op, const RunArguments& host) : arguments(host) {
  const std::vector<std::string> written = outputs_of(op);
  const std::vector<std::string> read = inputs_of(op.impl().made.source);
  for (auto& [name, tensor] : arguments.buffers) {
    TensorView from = tensor;
    if (std::find(written.begin(), written.end(), name) != written.end()) {
      std::vector<char>& bytes = bytes_[name];
      bytes.resize(bytes_of(tensor));
      const bool is_read = std::find(read.begin(), read.end(), name) != read.end();
      if (is_read)
        std::memcpy(bytes.data(), tensor.data(), bytes.size());
      else
        std::memset(bytes.data(), 0xff, bytes.size());
      from = TensorView(bytes.data(), tensor.dtype(), tensor.shape());
    }
    tensor = tensors_.emplace(name, from).first->second.view();
  }
}

std::vector<double> CardRun::fetch(const std::string& buffer) const {
  tensors_.at(buffer).fetch();
  const TensorView& there = arguments.buffers.at(buffer);
  return values_of(TensorView(bytes_.at(buffer).data(), there.dtype(), there.shape()));
}

Matrix few_places() {
  Matrix a{.rows = 22, .cols = 16, .indptr = {0}};
  std::mt19937 random(20261128);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.cols; ++j)
      if (i == 11 || (i % 5 != 0 && (random() % 8 == 0 || (i / 2 + j / 2) % 4 == 0))) a.indices.push_back(j);
    a.indptr.push_back(static_cast<int32_t>(a.indices.size()));
  }
  return a;
}

RunArguments arguments_of(const Operator& op, const std::string& axis, const Structure& structure, int64_t feat) {
  RunArguments arguments{.structures = {{axis, structure}}};
  const std::vector<std::string>& params = op.impl().made.source.params;
  if (std::find(params.begin(), params.end(), "feat") != params.end()) arguments.scalars["feat"] = feat;
  return arguments;
}

void expect_as_interpreted(const ReadyCase& c) {
  const Operator op = compile(parse(c.ready.text), c.ready.schedule, Device::cuda(), {.set = c.ready.set});
  RunArguments host = arguments_of(op, c.axis, c.structure(few_places()), 19);
  host.scalars.insert(c.scalars.begin(), c.scalars.end());
  host.reals = c.reals;
  const RunMemory tensors(op, host, 7);
  const CardRun run(op, tensors.arguments);
  loop::Memory want = memory_of(op, tensors.arguments);
  // A program that fails computes all the same, and says so where it is waited for.
  const std::string failure = refusal([&] { interpret_operator(op, Stage::source, want); });
  const Stream stream = Stream::cuda(nullptr);
  for (int repeat = 0; repeat < 2; ++repeat) {
    op.run(run.arguments, stream);
    EXPECT_EQ(refusal([&] { stream.synchronize(); }), failure) << c.name;
    for (const std::string& output : outputs_of(op)) {
      const std::vector<double> got = run.fetch(output), &expected = want.buffers.at(output);
      const bool is_narrow = loop::is_narrow(run.arguments.buffers.at(output).dtype());
      expect_close(got, expected, is_narrow ? 1. / 64 : 2e-5, c.name + " " + output);
    }
  }
}

}  // namespace weft::sparse::test
