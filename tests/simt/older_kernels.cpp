// The text of the kernels with its forms for sm_75, under names of their own: both stand in one program.
#define WEFT_SM 75
#define Attend OlderAttend
#define Gemm OlderGemm
#define weft_attend_fp16 weft_older_attend_fp16
#define weft_gemm_fp16 weft_older_gemm_fp16
#define weft_instructions weft_older_instructions
#include "tests/simt/kernels/attend.h"
#include "tests/simt/kernels/gemm.h"
#include "tests/simt/kernels/instructions.h"
