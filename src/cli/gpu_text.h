// The state of GPUs (device/cuda/nvml.h) in words and as JSON, for `doctor` and `bench machine`.
#ifndef CLI_GPU_TEXT_H
#define CLI_GPU_TEXT_H

#include "base/text.h"
#include "device/cuda/nvml.h"

// "41 C, 92 of 700 W, 1980 of 1980 MHz, ..."; what is not known is left out.
NODISCARD status cli_gpu_text(const nvml_state *s, text *out);
NODISCARD status cli_gpu_json(const nvml_state *s, text *out);
// Faults of the GPU, with the remedies; "": none. *is_broken: its results cannot be trusted.
NODISCARD status cli_gpu_wrong(const nvml_state *s, text *out, bool *is_broken);

#endif
