// Memory of a card, and host memory that cards read at full speed. Plain allocations: what a pool of another library
// holds is not touched.
#pragma once

#include <cstddef>

#include "device/cuda/card.h"
#include "weft/tensor.h"

namespace weft::cuda {

// 256-byte aligned, and zero; null where there are not so many bytes.
void* allocate(Device device, size_t bytes);
void release(Device device, void* data, size_t bytes);
// Bytes that nobody holds.
uint64_t available(Device device);
// Pinned, and zero.
void* allocate_pinned(Device device, size_t bytes);
void release_pinned(Device device, void* data, size_t bytes);

// In the order of the stream; host memory that is not pinned is read and written before these return.
void copy_to_card(Card& card, void* to, const void* from, size_t bytes, api::Stream stream);
void copy_to_host(Card& card, void* to, const void* from, size_t bytes, api::Stream stream);
void copy_on_card(Card& card, void* to, const void* from, size_t bytes, api::Stream stream);
void fill_zero(Card& card, void* data, size_t bytes, api::Stream stream);

}  // namespace weft::cuda
