// Quest on a card (kernels/quest.h).
#pragma once

#include "ops/quest.h"
#include "weft/device.h"

namespace weft::ops {

void summarise_on_card(const SummaryCall& call, Stream stream);
void choose_on_card(const ChooseCall& call, Stream stream);
void set_pages_on_card(const SetPagesCall& call, Stream stream);

}  // namespace weft::ops
