// What a target brings to attention: one backend for each kind of device. Specs, plans, checks and records are the same
// for all; what lies above this header names none.
//
//   const Backend& backend = backend_of(device);
//   const KernelTraits traits = backend.traits(spec, backend.target(options, device), device);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "attention/abi.h"
#include "attention/even.h"
#include "attention/rounding.h"
#include "attention/traits.h"
#include "base/bytes.h"
#include "weft/attention.h"

namespace weft::attention {

// What a backend made of a spec. It reads its own alone.
struct Code {
  virtual ~Code() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Throws Error(unsupported | invalid_device) where there is no such device; `name` is what lies there.
  virtual void require(Device device, std::string_view name) const = 0;
  // How many workers run the work of a stream; 0: as many as traits say.
  virtual int num_workers(Stream stream) const = 0;
  // Names the machine that a kernel is for ("avx2"): what the options ask for, or the best one of the device. Throws
  // Error(unsupported).
  virtual std::string target(const BuildOptions& options, Device device) const = 0;
  // The type in which q . k and p . v are multiplied: the spec's, or the target's choice. Throws Error(unsupported) for
  // one that the target does not multiply.
  virtual DType compute_type(const AttentionSpec& spec, const std::string& target) const = 0;
  // The type of queries that suits the spec's keys and values best: theirs, beside few bits bf16, where products are in
  // it; else fp32, as other queries would only be rounded in vain.
  DType query_type(const AttentionSpec& spec, const std::string& target) const;
  // What its kernels round that multiply in this type, for the error model.
  virtual Rounding rounding(const AttentionSpec& spec, DType compute) const = 0;
  // All that plans of the kernel follow from: tile classes, costs, thresholds, the default number of workers.
  virtual KernelTraits traits(const AttentionSpec& spec, const std::string& target, Device device) const = 0;
  // Of a valid spec. Throws Error(no_compiler | compile_failed | invalid_argument).
  virtual std::shared_ptr<const Code> build(const AttentionSpec& spec, const std::string& target,
                                            Device device) const = 0;

  // Uploads a plan: the host's pieces one behind another into a workspace, in the order of the stream. The first one
  // begins with the plan's header.
  virtual void write(const Workspace& to, std::span<const Bytes> pieces, Stream stream) const = 0;
  // Downloads: bytes that a tensor or a workspace points at, in the order of the stream; they are there when it
  // returns.
  virtual void read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const = 0;
  // The header of the plan that was written there, where the host can read it; null where there is none.
  virtual const PlanHeader* plan_in(const Workspace& workspace) const = 0;

  // The page ids of the plan there may change after its upload: runs read them when work before them has ended.
  virtual void expect_changes(const Workspace&) const {}

  // Makes an even plan in the workspace from lengths that the device alone knows; `plan` is of the same batch without
  // keys, and its sections are laid anew.
  virtual void plan_even(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const EvenBatch& batch,
                         Workspace& workspace, Stream stream) const;

  // For each query row of the plan there: its position, and page and slot of its own token.
  virtual void locate_rows(const AttentionKernel::Impl& kernel, const Workspace& workspace, int* positions, int* places,
                           Stream stream) const;

  // Runs the plan in the workspace; the arguments agree with it.
  virtual void launch(const AttentionKernel::Impl& kernel, const RunArgs& args, Workspace& workspace,
                      Stream stream) const = 0;
  // `floats` is how much is read.
  virtual void merge_states(const MergeStatesArgs& args, int64_t rows, int64_t floats, Device device,
                            Stream stream) const = 0;
};

// Throws Error(unsupported) where there is no such device.
const Backend& backend_of(Device device, std::string_view name = "device");
// Takes the place of what was there; the backend stays.
void add_backend(DeviceKind kind, const Backend& backend);

}  // namespace weft::attention
