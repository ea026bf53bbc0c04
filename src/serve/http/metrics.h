// The engine's figures as Prometheus reads them, and what the page shows inside.
#pragma once

#include <string>

#include "serve/http/service.h"
#include "weft/serve.h"

namespace weft::serve::http {

std::string metrics_text(const EngineStats& stats, const Service::Counts& transport, const LimitsMet& limits,
                         uint64_t responses_by_class[6]);
std::string inside_json(const EngineStats& stats, const EngineView& view);

}  // namespace weft::serve::http
