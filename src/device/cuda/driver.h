// NVIDIA's driver, found at run time (docs/cuda.md): its functions, or why there is none.
#pragma once

#include <optional>
#include <string>

#include "device/cuda/api.h"

namespace weft::cuda {

struct Driver {
#define WEFT_DECLARE(name, symbol, ...) api::Result (*name)(__VA_ARGS__) = nullptr;
  using Result = api::Result;
  using DeviceId = api::DeviceId;
  using Pointer = api::Pointer;
  using Context = api::Context;
  using Stream = api::Stream;
  using Event = api::Event;
  using Module = api::Module;
  using Function = api::Function;
  using Graph = api::Graph;
  using GraphExec = api::GraphExec;
  using DeviceAttribute = api::DeviceAttribute;
  using FunctionAttribute = api::FunctionAttribute;
  using CaptureMode = api::CaptureMode;
  using LaunchConfig = api::LaunchConfig;
  using TensorMap = api::TensorMap;
  using TensorDataType = api::TensorDataType;
  WEFT_CUDA_FUNCTIONS(WEFT_DECLARE)
#undef WEFT_DECLARE
  std::string path;
  int version = 0;  // 1000 * major + 10 * minor of the CUDA that it is for

  // "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
  std::string describe(api::Result result) const;
};

struct DriverSearch {
  const Driver* driver = nullptr;  // null: none that works
  std::string missing = {};        // what is, in a few words
  std::string tried = {}, remedy = {};
};
// The search is made once, and again never. No card is asked for; thread-safe.
const DriverSearch& find_driver();
// Of a driver that is there, whether it finds a card or not.
std::optional<int> driver_version();

}  // namespace weft::cuda
