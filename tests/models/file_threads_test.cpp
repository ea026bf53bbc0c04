// A model file that several threads read, apart from tests in which there is nothing for a sanitizer of threads.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::GgufWriter;
using testing::TempFolder;

TEST(Gguf, several_threads_read_one_file) {
  TempFolder folder;
  testing::random_model({.weights = GgufWriter::kQ8_0}).write(folder.path("model.gguf"));
  const ModelFile file(folder.path("model.gguf"));
  const GgufWriter expected = testing::random_model({.weights = GgufWriter::kQ8_0});
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      for (const WeightInfo& weight : file.weights()) {
        std::string data(weight.bytes, '\0');
        file.read(weight, 0, weight.rows, data.data());
        right[t] += file.config().num_layers == 2 && data == const_cast<GgufWriter&>(expected).tensor(weight.name).data;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) EXPECT_EQ(count, static_cast<int>(file.weights().size()));
}

}  // namespace
}  // namespace weft
