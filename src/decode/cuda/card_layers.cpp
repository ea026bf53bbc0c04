#include "decode/cuda/card_layers.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "decode/cuda/executor.h"
#include "decode/cuda/weights.h"
#include "decode/fused/cuda/check_fused.h"
#include "decode/fused/cuda/fused_layers.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/layer_by_layer.h"
#include "decode/layers_by_rows.h"

namespace weft::decode {

MadeLayers make_card_layers(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options,
                            const Sequences& sequences) {
  const bool by_name = options.step == StepForm::fused;
  std::string why_layered(kLayeredAsAsked);
  if (by_name) fused::check_fused(config, sources, options);
  if (options.step == StepForm::automatic) why_layered = fused::why_not_fused(config, sources, options);
  const bool fuses = by_name || (options.step == StepForm::automatic && why_layered.empty());
  Program program = make_program(config, parts_of(sources));
  std::optional<fused::Partition> partition;
  if (fuses) partition = fused::card_partition(options, program, sources);
  const std::shared_ptr<const CardWeights> weights =
      load_weights(sources, options, fuses ? fused::tiles_of(*partition) : TilesOf{});
  auto layered =
      std::make_unique<LayerByLayer>(std::move(program), make_cuda_executor(config, weights, options, sequences));
  const auto layered_for = [&](const std::string& why) {
    return MadeLayers{std::move(layered), options.step == StepForm::layered ? why : "layered: " + why};
  };
  if (!fuses) return layered_for(why_layered);
  std::unique_ptr<Layers> few;
  try {
    few = fused::make_fused_layers(config, weights, sources, options, sequences);
  } catch (const Error& error) {  // what is seen where memory is taken, or kernels are loaded
    // With a lost device layers would not run either.
    if (by_name || error.code() == ErrorCode::device_failed) throw;
    return layered_for(fused::reason_of(error));
  }
  const int64_t rows = few->most_rows(StepForm::fused);
  const std::string steps = rows == 1 ? "steps of 1 row" : fmt::format("steps of up to {} rows", rows);
  return {std::make_unique<LayersByRows>(std::move(few), std::move(layered),
                                         by_name ? FewRows::always : FewRows::where_better),
          steps + " fused, others layered"};
}

}  // namespace weft::decode
