// One work item: its rows against its keys, tile by tile, one pass over K and V for the whole head group. Which way it
// goes follows from the unit's kind of tile and the type that is multiplied in.
#include "attention/cpu/kernels/attend_direct.h"
#include "attention/cpu/kernels/attend_latent.h"
#include "attention/cpu/kernels/attend_packed.h"
#include "attention/cpu/kernels/int8_products.h"
#include "attention/cpu/kernels/merge.h"
#include "attention/cpu/kernels/products.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

// Calls visit.operator()<Way<...>>() with integer products where keys or values are multiplied so: what a hook made is
// not.
template <template <class, class> class Way, class Keys, class Values, class Visit>
void with_products([[maybe_unused]] const AttendArgs& args, const Visit& visit) {
#if defined(WEFT_HAS_BYTE_DOT)
  const bool int8 = args.compute == Compute::int8, int8_keys = int8 && !args.leaf->key,
             int8_values = int8 && !args.leaf->value;
  if (int8_keys && int8_values) return visit.template operator()<Way<Int8Keys, Int8Values>>();
  if (int8_keys) return visit.template operator()<Way<Int8Keys, Values>>();
  if (int8_values) return visit.template operator()<Way<Keys, Int8Values>>();
#endif
  visit.template operator()<Way<Keys, Values>>();
}

// Calls visit.operator()<Way>() with the way through the tiles of a unit.
template <class Visit>
void with_way(const AttendArgs& args, const Unit& unit, const Visit& visit) {
  if (unit.tile_kind == TileKind::direct) return with_products<AttendDirect, DirectKeys, DirectValues>(args, visit);
  if (args.v_is_k_prefix && !args.leaf->key && !args.leaf->value) return visit.template operator()<AttendLatent>();
  with_products<AttendPacked, PackedKeys, PackedValues>(args, visit);
}

// Beside tiles of registers few rows are multiplied in fp32, which is faster than pairs are.
AttendArgs args_of(const AttendArgs& args, const Unit& unit) {
  AttendArgs made = args;
  if (args.has_tiles && unit.tile_kind == TileKind::direct && !args.leaf->key && !args.leaf->value)
    made.compute = Compute::fp32;
  return made;
}

long long attend_scratch(const AttendArgs& given, const Unit& unit) {
  const AttendArgs args = args_of(given, unit);
  Arena arena(nullptr);
  with_way(args, unit, [&]<class Way>() { Way(UnitView(args, unit), arena); });
  return arena.bytes();
}

void attend(const AttendArgs& given, const WorkItem& work, char* scratch) {
  const Unit& unit = section<Unit>(given.plan, given.plan->units)[work.unit];
  const AttendArgs args = args_of(given, unit);
  Arena arena(scratch);
  with_way(args, unit, [&]<class Way>() {
    Way way(UnitView(args, unit), arena);
    way.attend(work);
    if (way.item.non_finite.start(way.item.states)) way.attend(work);
    way.order(way.item.states.o, way.item.unit.states);
    way.item.states.write(work);
  });
}

}  // namespace

extern const CoreTable kCore;
const CoreTable kCore = {attend_scratch, merge_scratch, attend, merge, softmax, merge_states};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
