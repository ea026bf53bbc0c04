// Who streams which tiles, and where sums go.
#include "decode/fused/partition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/decode/fused/shapes.h"

namespace weft::testing {
namespace {

TEST(Partitions, CutEveryLineEvenlyAtTiles) {
  for (const WeightType type :
       {WeightType::bf16, WeightType::q8_0, WeightType::q4_0, WeightType::q4_1, WeightType::q4_k})
    for (const int workers : {1, 2, 114, 132}) {
      const Partition partition = partition_of(llama_8b(), type, {.workers = workers});
      EXPECT_EQ(partition.period, 1);
      ASSERT_EQ(partition.matrices.size(), 5u);
      for (const MatrixPartition& matrix : partition.matrices) {
        const TiledMatrix& tiles = matrix.tiles;
        EXPECT_EQ(matrix.borders.front(), 0);
        EXPECT_EQ(matrix.borders.back(), tiles.num_tiles());
        EXPECT_EQ(tiles.bytes, tiles.rows * tiles.cols / weight_block(type).inputs * weight_block(type).bytes);
        const int64_t granule = matrix.role == WeightRole::head ? tiles.band_tiles : 1;
        int64_t least = tiles.num_tiles(), most = 0;
        for (size_t w = 0; w < static_cast<size_t>(workers); ++w) {
          const int64_t share = matrix.borders[w + 1] - matrix.borders[w];
          least = std::min(least, share), most = std::max(most, share);
          EXPECT_EQ(matrix.borders[w] % granule, 0);
        }
        EXPECT_LE(most - least, granule) << to_string(matrix.role);
      }
    }
}

// A strip's slots follow each other, one for each worker that has some of its tiles.
TEST(Partitions, NumberSlotsAlongTheLine) {
  for (const int workers : {1, 5, 132, 700}) {
    const Partition partition =
        partition_of(smollm_135m(), WeightType::q4_1, {.workers = workers, .x_bytes = 16 * 576});
    for (const MatrixPartition& matrix : partition.matrices) {
      if (matrix.role == WeightRole::down) {
        EXPECT_EQ(matrix.tiles.num_panels, workers == 1 ? 1 : workers % 3 == 0 || workers == 5 ? 3 : 4);
      }
      int32_t slot = 0;
      std::vector<int32_t> first_slot{0}, worker_slot(static_cast<size_t>(workers), -1);
      for (int64_t strip = 0; strip < matrix.tiles.num_strips(); ++strip) {
        for (size_t w = 0; w < static_cast<size_t>(workers); ++w) {
          const int64_t begin = std::max(matrix.borders[w], strip * matrix.tiles.strip_tiles()),
                        end = std::min(matrix.borders[w + 1], (strip + 1) * matrix.tiles.strip_tiles());
          if (begin >= end) continue;
          if (worker_slot[w] < 0) worker_slot[w] = slot;
          ++slot;
        }
        first_slot.push_back(slot);
      }
      EXPECT_EQ(matrix.first_slot, first_slot) << to_string(matrix.role) << ", " << workers;
      EXPECT_EQ(matrix.worker_slot, worker_slot) << to_string(matrix.role) << ", " << workers;
    }
  }
}

// Columns beyond x_bytes: the fewest panels that fit, or some more if workers divide into them; workers in order.
TEST(Partitions, CutWideMatricesIntoPanels) {
  struct Expected {
    int workers;
    int64_t x_bytes, panels;
  };
  for (const auto& [workers, x_bytes, panels] :
       {Expected{132, 128 << 10, 2}, Expected{114, 120 << 10, 2}, Expected{132, 64 << 10, 4}, Expected{7, 64 << 10, 7},
        Expected{6, 64 << 10, 4}, Expected{3, 64 << 10, 2}, Expected{1, 64 << 10, 1},
        Expected{5000 / 2, 64 << 10, 4}}) {
    const Partition partition = partition_of(llama_8b(), WeightType::q8_0, {.workers = workers, .x_bytes = x_bytes});
    for (const MatrixPartition& matrix : partition.matrices) {
      const TiledMatrix& tiles = matrix.tiles;
      ASSERT_EQ(tiles.num_panels, matrix.role == WeightRole::down ? panels : 1) << workers << ", " << x_bytes;
      for (int64_t w = 0; w < workers; ++w) {
        const int64_t begin = matrix.borders[static_cast<size_t>(w)], end = matrix.borders[static_cast<size_t>(w) + 1];
        if (begin == end) continue;
        const int64_t panel = tiles.panel_of(begin);
        EXPECT_EQ(tiles.panel_of(end - 1), panel) << w;
        EXPECT_TRUE(w >= workers * panel / tiles.num_panels && w < workers * (panel + 1) / tiles.num_panels) << w;
        const auto share =
            static_cast<double>(tiles.panel_bytes()) /
            static_cast<double>(workers * (panel + 1) / tiles.num_panels - workers * panel / tiles.num_panels);
        const int64_t granule = matrix.role == WeightRole::head ? tiles.band_tiles : 1;
        EXPECT_NEAR(static_cast<double>(tiles.bytes_of(begin, end)), share,
                    static_cast<double>(granule * tiles.parts[0].tile_bytes));
      }
    }
  }
}

// A head has one panel: where its columns of 8 rows are more than x_bytes, all panels are for 4 rows, 2 or 1.
TEST(Partitions, CutPanelsForAsManyRowsAsAHeadLeavesRoomFor) {
  struct Expected {
    int hidden;
    int64_t panels;  // of 28,672 columns
  };
  for (const auto& [hidden, panels] : {Expected{8192, 4}, Expected{8256, 2}, Expected{12288, 2}, Expected{32768, 1}}) {
    ModelConfig config = llama_8b();
    config.hidden_size = hidden, config.intermediate_size = 28672;
    for (const MatrixPartition& matrix : partition_of(config, WeightType::bf16, {.workers = 132}).matrices)
      EXPECT_EQ(matrix.tiles.num_panels, matrix.role == WeightRole::down ? panels : 1)
          << to_string(matrix.role) << " of " << hidden;
  }
}

// Tiles of a panel lie side by side, whatever types its rows have.
TEST(Partitions, PlaceTheTilesOfPanelsInOneLine) {
  TiledMatrix tiles = tile({.role = WeightRole::down,
                            .layer = 0,
                            .cols = 192,
                            .parts = {{WeightType::q8_0, 40}, {WeightType::q4_0, 32}, {WeightType::q8_0, 8}}},
                           32);
  tiles.num_panels = 3;
  ASSERT_EQ(tiles.num_bands, 6);
  int64_t byte = 0, line = 0;
  for (int64_t panel = 0; panel < 3; ++panel)
    for (int64_t band = 0; band < 6; ++band)
      for (int64_t i = 2 * panel; i < 2 * panel + 2; ++i, ++line) {
        EXPECT_EQ(tiles.tile_at(band, i), line);
        EXPECT_EQ(tiles.band_of(line), band);
        EXPECT_EQ(tiles.in_band(line), i);
        EXPECT_EQ(tiles.panel_of(line), panel);
        EXPECT_EQ(tiles.byte_of(line), byte);
        byte += tiles.part_of_band(band).tile_bytes;
      }
  EXPECT_EQ(tiles.byte_of(line), byte);
  EXPECT_EQ(tiles.bytes, byte);
}

TEST(Partitions, RepeatWithTheTypesOfWeights) {
  const Program program = make_program(llama_8b());
  ModelForm form;
  for (const WeightRole role : {WeightRole::qkv, WeightRole::output, WeightRole::gate_up, WeightRole::down}) {
    form = form_of(program, WeightType::q4_0);
    for (MatrixForm& matrix : form)
      if (matrix.role == role && matrix.layer % 4 == 1) matrix.parts[0].type = WeightType::q8_0;
    EXPECT_EQ(make_partition(program, form, {.workers = 132}).period, 4) << to_string(role);
  }
  // Rows of several types of one matrix are cut by their bytes.
  for (MatrixForm& matrix : form)
    if (matrix.role == WeightRole::qkv) matrix.parts = {{WeightType::q4_0, 4096 + 1024}, {WeightType::q8_0, 1024}};
  const Partition partition = make_partition(program, form, {.workers = 132});
  const MatrixPartition& qkv = partition.matrices[0];
  for (size_t w = 0; w < 132; ++w)
    EXPECT_NEAR(static_cast<double>(qkv.tiles.bytes_of(qkv.borders[w], qkv.borders[w + 1])),
                static_cast<double>(qkv.tiles.bytes) / 132, static_cast<double>(qkv.tiles.parts[1].tile_bytes));
}

TEST(Partitions, AreMadeQuickly) {
  const Program program = make_program(llama_8b());
  const ModelForm form = form_of(program, WeightType::bf16);
  double best = 1;
  for (int i = 0; i < 5; ++i)
    best = std::min(best, seconds_of([&] { make_partition(program, form, {.workers = 132}); }));
  fmt::print("a partition of the 8B shape for 132 workers: {:.2f} ms\n", best * 1e3);
  EXPECT_LT(best, 0.5);  // of what is allowed a hundred times: sanitizers, busy machines
}

TEST(Partitions, PrintAsATable) {
  const std::string text = to_string(partition_of(smollm_135m(), WeightType::q4_1, {.workers = 132}));
  EXPECT_TRUE(
      has(text, "132 workers, rings of 196608 bytes in entries of at most 16, counter edges; layers repeat after 1"))
      << text;
  EXPECT_TRUE(has(text,
                  "layer 0: qkv               960 x 576    Q4_1        345600      540        9       1           4 to "
                  "5            3200"))
      << text;
}

TEST(Partitions, RefuseMachinesThatCannotBe) {
  const auto refusal = [](const Machine& machine, WeightType type = WeightType::bf16) {
    return error_of([&] { partition_of(llama_8b(), type, machine); });
  };
  EXPECT_TRUE(has(refusal({.workers = 0}), "invalid_argument: workers = 0; allowed are 1 to 4096"));
  EXPECT_TRUE(
      has(refusal({.ring_bytes = 65520}), "ring_bytes = 65520 with entry_bytes = 32768; a ring holds at least"));
  EXPECT_TRUE(has(refusal({.entry_bytes = 8200}), "entry_bytes = 8200; allowed are multiples of 16"));
  EXPECT_TRUE(
      has(refusal({.entry_bytes = 1024}), "entry_bytes = 1024; a tile of qkv has 2048 bytes (16 rows by 64 columns"))
      << refusal({.entry_bytes = 1024});
  EXPECT_TRUE(has(refusal({.tile_cols = 40}), "tile_cols = 40; allowed are multiples of 32"));
  EXPECT_TRUE(has(refusal({.entry_bytes_of = {{WeightRole::down, 1 << 20}}}), "entry_bytes of down = 1048576"));
  EXPECT_TRUE(has(refusal({.x_bytes = 8191}),
                  "invalid_argument: x_bytes = 8191; 4096 columns of head, which is cut between bands and so has one "
                  "panel, of 1 row in bf16, have 8192 bytes"));
  EXPECT_TRUE(has(refusal({.x_bytes = 127}), "x_bytes = 127; 64 columns of qkv, which are a tile, of 1 row in bf16"));
  EXPECT_TRUE(has(refusal({.max_entries = 1}), "max_entries = 1; allowed are 2 and more"));
  EXPECT_TRUE(has(refusal({.kv_chunk = 0}), "kv_chunk = 0; allowed are 1 and more"));
}

TEST(Partitions, RefuseMoreQueryHeadsPerKvHeadThanAWarpHas) {
  ModelConfig config = smollm_135m();
  config.num_qo_heads = 17, config.num_kv_heads = 1;
  const std::string refusal = error_of([&] { partition_of(config, WeightType::q8_0, {}); });
  EXPECT_TRUE(has(refusal, "unsupported: the fused step: required 17 query heads per KV head; supported are 1 to 16"))
      << refusal;
}

TEST(Partitions, RefuseGroupsThatDoNotFillARow) {
  ModelConfig config = smollm_135m();
  config.hidden_size = 600;
  const std::string refusal = error_of([&] { partition_of(config, WeightType::q4_0, {}); });
  EXPECT_TRUE(has(refusal, "unsupported: qkv: required 600 columns in groups of 32 (Q4_0)")) << refusal;
}

}  // namespace
}  // namespace weft::testing
