#include "decode/cuda/card_layers.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "decode/cuda/executor.h"
#include "decode/cuda/weights.h"
#include "decode/fused/cuda/fused_layers.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/layer_by_layer.h"
#include "decode/layers_by_rows.h"

namespace weft::decode {

MadeLayers make_card_layers(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options,
                            const Sequences& sequences) {
  fused::StepChoice choice = fused::choose_step(config, sources, options);
  const std::shared_ptr<const CardWeights> weights =
      load_weights(sources, options, choice.partition ? fused::tiles_of(*choice.partition) : TilesOf{});
  auto layered = std::make_unique<LayerByLayer>(make_program(config, parts_of(sources)),
                                                make_cuda_executor(config, weights, options, sequences));
  if (!choice.partition) return {std::move(layered), choice.layered};
  std::unique_ptr<Layers> few;
  try {
    few = fused::make_fused_layers(config, weights, sources, std::move(*choice.partition), options, sequences);
  } catch (const Error& error) {  // what is seen where memory is taken, or kernels are loaded
    // With a lost device layers would not run either.
    if (options.step == StepForm::fused || error.code() == ErrorCode::device_failed) throw;
    return {std::move(layered), fused::layered_after(error)};
  }
  const int64_t rows = few->most_rows(StepForm::fused);
  const std::string steps = rows == 1 ? "steps of 1 row" : fmt::format("steps of up to {} rows", rows);
  return {std::make_unique<LayersByRows>(std::move(few), std::move(layered), options.step),
          steps + " fused, others layered"};
}

}  // namespace weft::decode
