// The choices of keys of a run file, in the order of the words in the option rows.
#ifndef CONFIG_RUN_CHOICES_H
#define CONFIG_RUN_CHOICES_H

// Words of several keys.
#define STORED_WORDS   "auto, fp32, bf16, fp16"
#define BOOL_WORDS     "auto, no, yes"
#define PIPELINE_WORDS "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe, dualpipe-v"

// No run file can request fp64: only `ref`
// computes it, as the reference for rounding errors. fp8 is bf16 with the GEMMs of layers in fp8.
typedef enum run_precision { RUN_FP32, RUN_BF16, RUN_FP16, RUN_FP8, RUN_FP64 } run_precision;
// The numbers that share a factor with train.precision = fp8.
typedef enum run_fp8 { RUN_FP8_BLOCK, RUN_FP8_TENSOR } run_fp8;
typedef enum run_recompute {
    RUN_RECOMPUTE_NONE,
    RUN_RECOMPUTE_SELECTIVE, // everything except GEMMs and attention
    RUN_RECOMPUTE_FULL,
    RUN_RECOMPUTE_AUTO // as given; run_config_load() replaces it
} run_recompute;
enum { RUN_MICRO_BATCH_AUTO = -1 }; // the planner chooses
enum { RUN_EVERY_AUTO = -1 };       // checkpoint.every: the run chooses
typedef enum run_muon_adjust { RUN_MUON_ORIGINAL, RUN_MUON_MATCH_RMS_ADAMW } run_muon_adjust;
typedef enum run_schedule {
    RUN_SCHEDULE_CONSTANT,
    RUN_SCHEDULE_LINEAR,
    RUN_SCHEDULE_COSINE,
    RUN_SCHEDULE_WSD,
    RUN_SCHEDULE_INVERSE_SQRT
} run_schedule;
// Update k of a warm-up of W updates, k from 1, has this share of the peak: (k - 1) / W, as
// transformers and Megatron count; k / W; k / (W + 1).
typedef enum run_warmup { RUN_WARMUP_ZERO, RUN_WARMUP_ONE, RUN_WARMUP_NANOGPT } run_warmup;
typedef enum run_decay { RUN_DECAY_LINEAR, RUN_DECAY_COSINE, RUN_DECAY_ONE_MINUS_SQRT } run_decay;
typedef enum run_arch {
    RUN_ARCH_AUTO, // the preset's or folder's; otherwise llama
    RUN_ARCH_GPT2,
    RUN_ARCH_LLAMA,
    RUN_ARCH_MISTRAL,
    RUN_ARCH_QWEN2,
    RUN_ARCH_QWEN3
} run_arch;
// The rows over which moe.aux_loss balances experts.
typedef enum run_aux_scope { RUN_AUX_SEQUENCE, RUN_AUX_MICRO, RUN_AUX_BATCH } run_aux_scope;
typedef enum run_score { RUN_SCORE_AUTO, RUN_SCORE_SOFTMAX, RUN_SCORE_SIGMOID } run_score;
// How rows travel between ranks that share experts.
typedef enum run_dispatch {
    RUN_DISPATCH_AUTO,
    RUN_DISPATCH_FP32,
    RUN_DISPATCH_BF16,
    RUN_DISPATCH_FP8
} run_dispatch;
typedef enum run_auto_bool { RUN_AUTO, RUN_NO, RUN_YES } run_auto_bool; // AUTO: as the preset
typedef enum run_packing {
    RUN_PACKING_MASKED,
    RUN_PACKING_PLAIN,
    RUN_PACKING_BEST_FIT
} run_packing;
typedef enum run_positions {
    RUN_POSITIONS_AUTO,
    RUN_POSITIONS_DOCUMENT,
    RUN_POSITIONS_SEQUENCE
} run_positions;
// OFF: a lost rank ends the run. RESTART: all ranks are started again. LIVE: only the lost one is.
typedef enum run_resilience {
    RUN_RESILIENCE_OFF,
    RUN_RESILIENCE_RESTART,
    RUN_RESILIENCE_LIVE
} run_resilience;
// The reaction to a slow rank.
typedef enum run_straggler {
    RUN_STRAGGLER_OFF,
    RUN_STRAGGLER_NAME,
    RUN_STRAGGLER_MOVE, // the other ranks take over micro-batches
    RUN_STRAGGLER_EVICT // the rank is replaced, or the run shrinks
} run_straggler;
typedef enum run_special { RUN_SPECIAL_TEXT, RUN_SPECIAL_TOKENS } run_special;
// Low-rank terms of matrices (model_adapter).
typedef enum run_adapter {
    RUN_ADAPTER_NONE,
    RUN_ADAPTER_LORA,
    RUN_ADAPTER_RSLORA,
    RUN_ADAPTER_DORA
} run_adapter;
// How the base model's matrices are held: the values of op_quant.
typedef enum run_quantize { RUN_QUANTIZE_NONE, RUN_QUANTIZE_INT8, RUN_QUANTIZE_NF4 } run_quantize;
// The divisor of the advantages of a group.
typedef enum run_scale { RUN_SCALE_GROUP, RUN_SCALE_NONE } run_scale;
// The form of a line of data.train, and the turns of an assistant that are trained: data/chat.h.
typedef enum run_format {
    RUN_FORMAT_AUTO,
    RUN_FORMAT_TEXT,
    RUN_FORMAT_MESSAGES,
    RUN_FORMAT_PROMPT,
    RUN_FORMAT_ALPACA,
    RUN_FORMAT_SHAREGPT
} run_format;
typedef enum run_trained { RUN_TRAINED_ALL, RUN_TRAINED_LAST } run_trained;
typedef enum run_on_error { RUN_ON_ERROR_STOP, RUN_ON_ERROR_SKIP } run_on_error;
typedef enum run_level {
    RUN_LEVEL_AUTO, // the best level of this CPU
    RUN_LEVEL_SCALAR,
    RUN_LEVEL_AVX2,
    RUN_LEVEL_AVX512,
    RUN_LEVEL_AVX512_BF16,
    RUN_LEVEL_AMX
} run_level;
typedef enum run_device { RUN_DEVICE_CPU, RUN_DEVICE_SHADOW, RUN_DEVICE_CUDA } run_device;
typedef enum run_backend { RUN_BACKEND_AUTO, RUN_BACKEND_CPU, RUN_BACKEND_REF } run_backend;
typedef enum run_stored {
    RUN_STORED_AUTO,
    RUN_STORED_FP32,
    RUN_STORED_BF16,
    RUN_STORED_FP16
} run_stored;
typedef enum run_master { RUN_MASTER_AUTO, RUN_MASTER_FP32, RUN_MASTER_NONE } run_master;
typedef enum run_layout { RUN_LAYOUT_GIVEN, RUN_LAYOUT_AUTO } run_layout;
typedef enum run_sums { RUN_SUMS_MICROBATCH, RUN_SUMS_STEP } run_sums;
typedef enum run_determinism { RUN_FAST, RUN_STRICT } run_determinism;
typedef enum run_transport {
    RUN_TRANSPORT_AUTO,
    RUN_TRANSPORT_SHM,
    RUN_TRANSPORT_UCX,
    RUN_TRANSPORT_MPI,
    RUN_TRANSPORT_NCCL,
    RUN_TRANSPORT_PEER,
    RUN_TRANSPORTS
} run_transport;
typedef enum run_compression {
    RUN_COMPRESS_NONE,
    RUN_COMPRESS_BF16,
    RUN_COMPRESS_INT8,
    RUN_COMPRESS_FP8,
    // TOPK and ONEBIT keep their compression error and add it to the next step's gradients.
    RUN_COMPRESS_TOPK,
    RUN_COMPRESS_ONEBIT
} run_compression;
typedef enum run_price {
    RUN_PRICE_AUTO, // the first of the following that the cluster has
    RUN_PRICE_ON_DEMAND,
    RUN_PRICE_RESERVED,
    RUN_PRICE_OWNED,       // energy costs extra
    RUN_PRICE_SPOT,        // cheaper, but can be withdrawn at short notice
    RUN_PRICE_RESERVED_1Y, // the commitment is paid whether it is used or not
    RUN_PRICE_RESERVED_3Y
} run_price;
typedef enum run_log_format { RUN_LOG_TEXT, RUN_LOG_JSON } run_log_format;

#endif
