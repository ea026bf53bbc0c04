// Work of a stream that is recorded once and launched many times.
//
//   const Graph graph = capture(card, stream, [&] { kernel.run(...); });
//   launch(graph, stream);
#pragma once

#include <functional>

#include "device/cuda/handle.h"

namespace weft::cuda {

using Graph = Handle<api::GraphExec, &Driver::graph_exec_destroy>;

// What `work` enqueues in the stream, which is not the legacy default one. Whatever work throws goes on, and the stream
// is as before.
Graph capture(Card& card, api::Stream stream, const std::function<void()>& work);
bool is_capturing(Card& card, api::Stream stream);
void launch(const Graph& graph, api::Stream stream);

}  // namespace weft::cuda
