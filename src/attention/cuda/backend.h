// CUDA as a backend of attention: specs become texts of kernels, which a runtime compiles and launches.
#pragma once

#include "attention/backend.h"
#include "jit/cuda/runtime.h"

namespace weft::attention {

class CudaBackend : public Backend {
 public:
  void require(Device device, std::string_view name) const override { weft::cuda::runtime().require(device, name); }
  int num_workers(Stream) const override { return 0; }
  std::string target(const BuildOptions& options, Device device) const override;
  DType compute_type(const AttentionSpec& spec, const std::string& target) const override;
  Rounding rounding(const AttentionSpec& spec, DType compute) const override;
  KernelTraits traits(const AttentionSpec& spec, const std::string& target, Device device) const override;
  std::shared_ptr<const Code> build(const AttentionSpec& spec, const std::string& target, Device device) const override;

  void write(const Workspace& to, std::span<const Bytes> pieces, Stream stream) const override;
  void read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const override;
  const PlanHeader* plan_in(const Workspace& workspace) const override;

  void expect_changes(const Workspace& workspace) const override;

  void plan_even(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const EvenBatch& batch,
                 Workspace& workspace, Stream stream) const override;
  void locate_rows(const AttentionKernel::Impl& kernel, const Workspace& workspace, int* positions, int* places,
                   Stream stream) const override;
  void launch(const AttentionKernel::Impl& kernel, const RunArgs& args, Workspace& workspace,
              Stream stream) const override;
  void merge_states(const MergeStatesArgs& args, int64_t rows, int64_t floats, Device device,
                    Stream stream) const override;

 private:
  struct PlanOnHost;
  static PlanOnHost& of(const Workspace& workspace);
  PlanOnHost& kept(const Workspace& workspace) const;
  // A captured launch runs later plans, too.
  void check_capture(const AttentionKernel::Impl& kernel, const PlanOnHost& plan, Stream stream) const;
};

}  // namespace weft::attention
