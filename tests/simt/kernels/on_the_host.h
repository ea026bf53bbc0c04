// Kernels of this folder as the host's compiler makes them, which the host machine runs.
#pragma once

#include "tests/simt/kernels/args.h"

extern "C" void weft_sum(weft::SumArgs args);
extern "C" void weft_gemm_fp16(weft::GemmArgs args);
extern "C" void weft_gemm_bf16(weft::GemmArgs args);
extern "C" void weft_attend_fp16(weft::AttendArgs args);
extern "C" void weft_attend_bf16(weft::AttendArgs args);
extern "C" void weft_convert(weft::ConvertArgs args);
extern "C" void weft_instructions(weft::InstructionsArgs args);
extern "C" void weft_older_gemm_fp16(weft::GemmArgs args);  // with the text's forms for sm_75
extern "C" void weft_older_attend_fp16(weft::AttendArgs args);
extern "C" void weft_older_instructions(weft::InstructionsArgs args);
extern "C" void weft_rows(weft::RowsArgs args);
extern "C" void weft_ring(weft::PersistentArgs args);
extern "C" void weft_lanes_ring(weft::PersistentArgs args);
extern "C" void weft_grid(weft::PersistentArgs args);
extern "C" void weft_chain(weft::PersistentArgs args);
extern "C" void weft_phases(weft::PersistentArgs args);
