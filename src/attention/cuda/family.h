// How kernels compute attention on a card: families, each with what it can do, its tiles and their costs, and the text
// that makes a kernel of a spec. Specs, plans, the text of variants, merging and tests are the same for all.
//
//   const Family& family = family_of(spec, find_architecture("sm_90a"));
//   for (const Form& form : forms_of(spec, architecture)) ...        // kernels, the one with the fewest tiles first
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/cuda/architecture.h"
#include "attention/traits.h"
#include "weft/attention.h"

namespace weft::attention::cuda {

constexpr int bit_of(TileKind kind) { return 1 << static_cast<int>(kind); }
inline constexpr int kAllTileKinds = (1 << kMaxTileClasses) - 1;

// A kernel that a family makes of a spec.
struct Form {
  std::string_view name;                     // of its tiles: "small_tiles"
  int tile_kinds;                            // bits: units that it walks
  Loader loader;                             // of all but elements rows of q, k and v lie at multiples of 16 bytes
  int threads, shared_bytes, resident_ctas;  // of a CTA; CTAs of a multiprocessor
  int ctas_of_worker = 1;                    // which share the rows of its items: 1 or 2
  bool merges_apart = false;                 // partials of one level are merged by a kernel behind it
  int loaders = 0;               // the last so many of these threads only load, ahead over all items of the CTA
  int best_for = kAllTileKinds;  // bits: of plans that have none of these, a later form is faster
  // A row's bits are those of other forms that walk its tiles, so that fixed splits may take any of them.
  bool is_alike = true;
  // Of its text: members of Spec that it has of its own, and the class that computes (kernels/attend.h).
  std::string constants, type;
};

// Whether a family computes a spec: the type that it multiplies in, or why it does not.
struct Ability {
  std::optional<DType> type;
  std::string why_not;  // "head dims up to 256"
};

class Family {
 public:
  virtual ~Family() = default;
  virtual std::string_view name() const = 0;
  virtual Ability ability(const AttentionSpec& spec, const Architecture& architecture) const = 0;
  // Of a spec that it computes. Those with fewer tiles, of which a multiprocessor may hold more CTAs, come first.
  virtual std::vector<Form> forms(const AttentionSpec& spec, const Architecture& architecture) const = 0;
  // Tile classes with costs, thresholds and granule, of one multiprocessor. Costs are nanoseconds of a CTA, of which a
  // multiprocessor has two.
  virtual void describe(const AttentionSpec& spec, const Architecture& architecture, KernelTraits& traits) const = 0;
};

const Family& plain_family();
const Family& mma_family();
const Family& wgmma_family();
const Family& latent_family();
const Family& producer_family();

// The fastest first; the last one computes everything.
std::span<const Family* const> families();
// The first that multiplies the spec in the type that it wants; where it names none, the fastest.
const Family& family_of(const AttentionSpec& spec, const Architecture& architecture);
// What a card of this architecture multiplies the spec in, bf16 or fp16; nothing where the plain family is all.
std::optional<DType> product_type(const AttentionSpec& spec, const Architecture& architecture);
// Kernels of the spec: the family's, and behind them the one that takes tensors in any strides.
std::vector<Form> forms_of(const AttentionSpec& spec, const Architecture& architecture);

// What holds of all families, whose smallest tiles are these.
PlanThresholds thresholds_beside(const TileClass& small);

}  // namespace weft::attention::cuda
