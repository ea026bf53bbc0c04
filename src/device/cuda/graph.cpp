#include "device/cuda/graph.h"

#include "base/check.h"

namespace weft::cuda {

Graph capture(Card& card, api::Stream stream, const std::function<void()>& work) {
  check(stream != nullptr, ErrorCode::invalid_argument,
        "stream: the legacy default stream cannot be captured; give one of its own");
  const Driver& driver = card.driver();
  const Current current(card);
  card.check(driver.stream_begin_capture(stream, api::kCaptureThreadLocal), "beginning a capture");
  api::Graph recorded = nullptr;
  try {
    work();
  } catch (...) {
    driver.stream_end_capture(stream, &recorded);
    if (recorded != nullptr) driver.graph_destroy(recorded);
    throw;
  }
  card.check(driver.stream_end_capture(stream, &recorded), "ending a capture");
  const Handle<api::Graph, &Driver::graph_destroy> graph(card, recorded);
  api::GraphExec executable = nullptr;
  card.check(driver.graph_instantiate(&executable, recorded, 0), "making a graph");
  Graph made(card, executable);
  card.check(driver.graph_upload(executable, stream), "uploading a graph");
  return made;
}

bool is_capturing(Card& card, api::Stream stream) {
  if (stream == nullptr) return false;
  const Current current(card);
  int status = 0;
  card.check(card.driver().stream_is_capturing(stream, &status), "asking whether a stream is captured");
  return status != 0;
}

void launch(const Graph& graph, api::Stream stream) {
  Card& card = Card::at(graph.card().index());
  const Current current(card);
  card.check_launch(card.driver().graph_launch(graph.get(), stream), "graph");
}

}  // namespace weft::cuda
