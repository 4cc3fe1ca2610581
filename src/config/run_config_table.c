// The rows of run_config: every key that a run file may hold, with its default, limits and help.
// Help, man page, JSON schema and the configuration reference are made from these rows.
#include "config/run_config.h"

#define AT(field) (int64_t) offsetof(run_config, field)
#define INT(k, field, def, lo, hi, class, u, ...)                                                \
    {                                                                                            \
        .key = (k), .kind = OPTION_INT, .offset = AT(field), .default_text = (def), .min = (lo), \
        .max = (hi), .on_resume = OPTION_##class, .unit = (u), __VA_ARGS__                       \
    }
#define REAL(k, field, def, lo, hi, class, ...)                                                   \
    {                                                                                             \
        .key = (k), .kind = OPTION_REAL, .offset = AT(field), .default_text = (def), .min = (lo), \
        .max = (hi), .on_resume = OPTION_##class, .unit = "", __VA_ARGS__                         \
    }
#define CHOICE(k, field, def, words, class, ...)                                       \
    {                                                                                  \
        .key = (k), .kind = OPTION_CHOICE, .offset = AT(field), .default_text = (def), \
        .choices = (words), .on_resume = OPTION_##class, .unit = "", __VA_ARGS__       \
    }
#define OTHER(k, what, field, def, class, ...)                                         \
    {                                                                                  \
        .key = (k), .kind = OPTION_##what, .offset = AT(field), .default_text = (def), \
        .on_resume = OPTION_##class, .unit = "", __VA_ARGS__                           \
    }

// The words of each choice stand in the order of its enum in run_config.h.
#define STORED_WORDS   "auto, fp32, bf16, fp16"
#define BOOL_WORDS     "auto, no, yes"
#define PIPELINE_WORDS "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe, dualpipe-v"

static const option rows[] = {
    OTHER("run.dir", PATH, run.dir, "run", FREE,
          .help = "folder of the run: checkpoints, metrics, logs",
          .also = "out_dir, output_dir, save"),

    // ---- what is trained, and how long
    INT("train.steps", train.steps, "1000", 1, 1e12, RECORDED, "optimizer steps",
        .help = "length of the run", .also = "max_steps, max_iters, iterations, train_iters"),
    INT("train.seq", train.seq, "256", 1, 1 << 24, FIXED, "tokens", .help = "length of a sequence",
        .also = "seq_length, seq_len, block_size, max_seq_len"),
    INT("train.global_batch", train.global_batch, "8", 1, 1 << 24, RECORDED, "sequences",
        .help = "sequences per optimizer step", .also = "batch_size, batch, global_batch_size"),
    INT("train.micro_batch", train.micro_batch, "0", 0, 1 << 24, FREE, "sequences",
        .choices = "auto", .word = RUN_MICRO_BATCH_AUTO,
        .help =
            "sequences computed at once; changes memory and speed, not the result; 0 takes the "
            "largest divisor of the batch with at most 4096 tokens, half of that or less where "
            "activations would take much memory; auto, and with layout=auto 0 too, takes what the "
            "planner finds fastest, on a processor the smallest within 1% of that",
        .also = "micro_batch_size, device_batch_size, per_device_batch_size"),
    CHOICE("train.precision", train.precision, "fp32", "fp32, bf16, fp16, fp8", RECORDED,
           .help =
               "type of activations and of the inputs of matrix products; fp8, of `simulate` and "
               "`plan` only, is bf16 with the products of layers in fp8",
           .also = "dtype"),
    CHOICE("train.recompute", train.recompute, "auto", "none, selective, full, auto", FREE,
           .help = "what the backward pass computes again instead of keeping it, to the same bits; "
                   "selective is all but matrix products and attention; auto takes selective where "
                   "that saves a tenth of a large run's memory for 2% of its work, else none",
           .also = "activation_checkpointing, gradient_checkpointing"),
    INT("train.recompute_layers", train.recompute_layers, "0", 0, 1 << 20, FREE, "layers",
        .choices = "all",
        .help =
            "of train.recompute=selective or full: so many of the decoder layers, spread evenly over "
            "the model; 0 or all is all of them",
        .also = "recompute_num_layers, activations_checkpoint_num_layers"),
    INT("train.seed", train.seed, "1", 0, 9007199254740992.0, FIXED, "",
        .help = "of initial weights, data order, dropout and stochastic rounding",
        .also = "random_seed"),
    OTHER("train.freeze", LIST, train.freeze, NULL, FIXED,
          .help = "weights that keep their values: patterns of their names, such as embed.* or "
                  "layers.[0-3].*; they have no gradient and no optimizer state, and nothing is "
                  "computed backward below the first trained weight",
          .also = "frozen, freeze_layers"),
    REAL("train.z_loss", train.z_loss, "0", 0, 1, RECORDED,
         .help = "weight of the squared log of the softmax's sum in the loss"),
    OTHER("train.batch_ramp", RAMP, train.batch_ramp, NULL, RECORDED, .min = 1, .max = 1 << 24,
          .help = "global batch from given steps on, such as {0: 8, 100: 16}; the first step is 0"),
    OTHER("train.max_time", TIME, train.max_time, "0", FREE,
          .help = "after this time stop with a checkpoint and exit 75; 0 is never"),

    INT("train.tokens", train.tokens, "0", 0, 9e15, FREE, "tokens",
        .help =
            "of `simulate` and `plan`: length of the run instead of train.steps; 0 is not given",
        .also = "total_tokens, max_tokens"),

    // ---- optimizer
    CHOICE("optimizer.name", optimizer.name, "adamw", RUN_OPTIMIZER_NAMES, FIXED,
           .help = "muon takes the two-dim weights but embeddings and head, adamw the rest"),
    REAL("optimizer.lr", optimizer.lr, "3e-4", 0, 1e3, RECORDED, .help = "peak learning rate",
         .also = "learning_rate, max_lr, peak_lr"),
    REAL("optimizer.beta1", optimizer.beta1, "0.9", 0, 1, RECORDED,
         .help = "decay of adamw's first moment; of lion the moment's share in the direction",
         .also = "adam_beta1"),
    REAL("optimizer.beta2", optimizer.beta2, "0.95", 0, 1, RECORDED,
         .help = "decay of adamw's second moment, and of lion's only one", .also = "adam_beta2"),
    REAL("optimizer.eps", optimizer.eps, "1e-8", 1e-30, 1, RECORDED,
         .help = "added to the root of adamw's second moment", .also = "adam_eps, epsilon"),
    REAL("optimizer.weight_decay", optimizer.weight_decay, "0.1", 0, 1e3, RECORDED,
         .help = "decoupled decay of weights with two or more dims", .also = "wd"),
    REAL("optimizer.clip", optimizer.clip, "1", 0, 1e30, RECORDED,
         .help = "largest norm of the whole gradient; 0 does not clip",
         .also = "grad_clip, clip_grad, max_grad_norm"),
    REAL("optimizer.momentum", optimizer.momentum, "0.95", 0, 1, RECORDED, .help = "of muon"),
    OTHER("optimizer.nesterov", BOOL, optimizer.nesterov, "true", RECORDED,
          .help = "of muon: look one step ahead"),
    CHOICE("optimizer.muon_lr_adjust", optimizer.muon_lr_adjust, "match_rms_adamw",
           "original, match_rms_adamw", RECORDED,
           .help = "how muon scales its step with a matrix's shape; with match_rms_adamw one "
                   "learning rate serves muon and adamw"),
    OTHER("optimizer.stochastic_rounding", BOOL, optimizer.stochastic_rounding, "false", RECORDED,
          .help = "round weights and moments that are stored narrow up or down by chance, so that "
                  "small updates are not lost"),

    // ---- learning rate
    CHOICE("schedule.name", schedule.name, "cosine", "constant, linear, cosine, wsd, inverse_sqrt",
           RECORDED, .help = "rule of the learning rate after its warm-up",
           .also = "lr_scheduler, lr_decay_style"),
    INT("schedule.warmup", schedule.warmup, "0", 0, 1e12, RECORDED, "steps",
        .help = "steps in which the learning rate rises to its peak",
        .also = "warmup_steps, warmup_iters, lr_warmup"),
    REAL("schedule.min_ratio", schedule.min_ratio, "0", 0, 1, RECORDED,
         .help = "of linear, cosine and wsd: last learning rate as a share of the peak",
         .also = "min_lr"),
    INT("schedule.decay_steps", schedule.decay_steps, "0", 0, 1e12, RECORDED, "steps",
        .help = "of wsd, which needs it: steps of the decay at the end", .also = "lr_decay_iters"),
    CHOICE("schedule.decay_shape", schedule.decay_shape, "linear", "linear, cosine, 1-sqrt",
           RECORDED, .help = "of wsd"),
    INT("schedule.timescale", schedule.timescale, "0", 0, 1e12, RECORDED, "steps",
        .help = "of inverse_sqrt; 0 takes the warm-up, or 10000 without one"),

    // ---- validation and checkpoints
    INT("eval.every", eval.every, "200", 0, 1e12, FREE, "steps",
        .help = "how often the validation loss is computed; 0 is never",
        .also = "eval_interval, interval"),
    INT("eval.batches", eval.batches, "8", 1, 1 << 24, FREE,
        "batches of train.global_batch sequences",
        .help = "how much of the held-out text is used, the same each time",
        .also = "eval_iters, iters"),
    INT("checkpoint.every", checkpoint.every, "1000", 0, 1e12, FREE, "steps",
        .help = "how often the run is saved; 0 is after the last step only",
        .also = "save_interval, interval"),
    INT("checkpoint.keep", checkpoint.keep, "3", 1, 1e6, FREE, "checkpoints",
        .help = "how many of the newest are kept, 2 at least, the best one aside",
        .also = "save_total_limit"),
    INT("checkpoint.keep_every", checkpoint.keep_every, "0", 0, 1e12, FREE, "steps",
        .help = "checkpoints of these steps stay for ever; 0 is none"),
    OTHER("checkpoint.async", BOOL, checkpoint.async, "true", FREE,
          .help = "steps wait for a copy of the state only, which is written beside them; no needs "
                  "no memory for the copy",
          .also = "async_save"),
    REAL("checkpoint.write_s", checkpoint.write_s, "0", 0, 1e9, FREE,
         .help =
             "of `simulate` and `plan`: seconds for which one checkpoint holds the run; 0 is from "
             "its bytes and the cluster"),
    REAL("checkpoint.restart_s", checkpoint.restart_s, "0", 0, 1e9, FREE,
         .help = "of `simulate` and `plan`: seconds from a failure to the first new step; 0 is the "
                 "cluster's"),
    REAL("checkpoint.interval_s", checkpoint.interval_s, "0", 0, 1e9, FREE,
         .help = "of `simulate` and `plan`: seconds of work between two checkpoints; 0 is the best",
         .also = "checkpoint_interval"),

    // ---- model
    OTHER("model.preset", TEXT, model.preset, NULL, FIXED,
          .help = "a model by name, such as gpt2-124m or llama-135m; other model keys change it",
          .also = "name"),
    OTHER("model.from", PATH, model.from, NULL, FIXED,
          .help = "a Hugging Face folder whose model is trained on, weights too",
          .also = "init_from, path"),
    CHOICE("model.arch", model.arch, "auto", "auto, gpt2, llama, mistral, qwen2, qwen3", FIXED,
           .help = "architecture of a model that is given by its sizes; auto is llama",
           .also = "type, architecture"),
    INT("model.layers", model.layers, "0", 0, 1e4, FIXED, "",
        .help = "number of blocks; 0 as the preset",
        .also = "n_layer, num_layers, num_hidden_layers"),
    INT("model.dim", model.dim, "0", 0, 1 << 20, FIXED, "",
        .help = "width of the model; 0 as the preset", .also = "n_embd, hidden_size, d_model"),
    INT("model.heads", model.heads, "0", 0, 1 << 16, FIXED, "",
        .help = "attention heads; 0 as the preset",
        .also = "n_head, num_heads, num_attention_heads"),
    INT("model.kv_heads", model.kv_heads, "0", 0, 1 << 16, FIXED, "",
        .help = "heads of keys and values; 0 as the preset, else as many as heads",
        .also = "n_kv_head, num_key_value_heads"),
    INT("model.head_dim", model.head_dim, "0", 0, 256, FIXED, "",
        .help = "width of a head; 0 as the preset, else dim / heads"),
    INT("model.ffn_dim", model.ffn_dim, "0", 0, 1 << 22, FIXED, "",
        .help = "width of the feed-forward part; 0 as the preset, else what is usual for dim",
        .also = "intermediate_size, d_ff"),
    INT("model.vocab", model.vocab, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "size of the vocabulary; 0 as the preset, else the tokenizer's",
        .also = "vocab_size, n_vocab"),
    INT("model.context", model.context, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "longest sequence of the model; 0 as the preset, else train.seq",
        .also = "n_positions, max_position_embeddings, n_ctx"),
    INT("model.window", model.window, "0", 0, 1 << 24, FIXED, "tokens",
        .help =
            "a query sees itself and the window - 1 positions before; 0 as the preset, else all",
        .also = "sliding_window"),
    REAL("model.rope_theta", model.rope_theta, "0", 0, 1e12, FIXED,
         .help = "base of the rotary frequencies; 0 as the preset, else 10000"),
    REAL("model.norm_eps", model.norm_eps, "0", 0, 1, FIXED,
         .help = "epsilon of the norms; 0 as the preset, else 1e-5",
         .also = "rms_norm_eps, layer_norm_epsilon"),
    REAL("model.dropout", model.dropout, "0", 0, 0.99, FIXED,
         .help = "share of embedding, attention and residual values set to zero in training"),
    CHOICE("model.tied", model.tied, "auto", BOOL_WORDS, FIXED,
           .help = "one matrix for embedding and head; auto as the preset or architecture",
           .also = "tie_word_embeddings, tie_embeddings"),
    CHOICE("model.attention_bias", model.attention_bias, "auto", BOOL_WORDS, FIXED,
           .help = "biases of the attention's projections; auto as the preset or architecture",
           .also = "bias"),
    CHOICE("model.mlp_bias", model.mlp_bias, "auto", BOOL_WORDS, FIXED,
           .help = "biases of the feed-forward part; auto as the preset or architecture"),
    CHOICE("model.qk_norm", model.qk_norm, "auto", BOOL_WORDS, FIXED,
           .help = "norm over each head of queries and keys; auto as the preset or architecture"),

    // ---- data
    OTHER("data.train", PATHS, data.train, NULL, FIXED,
          .help = "texts, JSON lines or token files: a path, a list, globs, paths with weights",
          .also = "path, dataset, file, files, text"),
    OTHER("data.valid", SHARE, data.valid, "0.05", FIXED, .min = 0, .max = 0.99,
          .help = "held-out text: a share of data.train, or files; 0 is none",
          .also = "val, validation, eval, test"),
    OTHER("data.tokenizer", PATH, data.tokenizer, "auto", FIXED, .choices = "auto, bytes",
          .help =
              "bytes, a tokenizer.json, or a folder with one or with vocab.json and merges.txt; "
              "auto is the one in model.from, else bytes"),
    CHOICE("data.packing", data.packing, "masked", "masked, plain", FIXED,
           .help = "documents in one sequence: masked keeps attention within each, plain does not"),

    // ---- machine
    OTHER("memory.limit", BYTES, memory.limit, "0", FREE,
          .help =
              "a run of which a rank needs more is refused; 0 is the rank's share of what is free",
          .also = "max"),
    CHOICE("kernels.level", kernels.level, "auto", "auto, scalar, avx2, avx512, avx512_bf16, amx",
           RECORDED, .help = "vector instructions; auto is the fastest that this processor has",
           .also = "isa"),
    INT("kernels.threads", kernels.threads, "0", 0, 4096, FREE, "", .help = "0 is one per core",
        .also = "num_threads"),
    CHOICE("kernels.device", kernels.device, "cpu", "cpu, shadow", RECORDED,
           .help = "shadow is the test device that finishes late"),
    CHOICE("kernels.backend", kernels.backend, "auto", "auto, cpu, ref", RECORDED,
           .help = "ref is slow and plain, to compare with"),
    OTHER("kernels.keep_panels", BOOL, kernels.keep_panels, "false", FREE,
          .help = "pack weights once a step, not once for each product: faster with many "
                  "micro-batches, takes twice the weights' bytes more"),

    // ---- what is stored how
    CHOICE("precision.weights", precision.weights, "auto", STORED_WORDS, RECORDED,
           .help = "auto is train.precision"),
    CHOICE("precision.grads", precision.grads, "auto", STORED_WORDS, RECORDED,
           .help = "type of gradient accumulators; auto is fp32"),
    CHOICE("precision.master", precision.master, "auto", "auto, fp32, none", RECORDED,
           .help = "an fp32 copy of narrower weights that takes the updates; auto keeps one"),
    CHOICE("precision.moments", precision.moments, "auto", STORED_WORDS, RECORDED,
           .help = "type of the optimizer's state; auto is fp32"),
    REAL("precision.loss_scale.initial", precision.loss_scale.initial, "65536", 1, 0x1p32, RECORDED,
         .help = "of fp16: first factor of the loss"),
    INT("precision.loss_scale.window", precision.loss_scale.window, "2000", 1, 1e9, RECORDED,
        "steps", .help = "of fp16: steps without overflow before the factor doubles"),
    INT("precision.loss_scale.hysteresis", precision.loss_scale.hysteresis, "2", 1, 1e6, RECORDED,
        "overflows", .help = "of fp16: overflows before the factor halves"),
    REAL("precision.loss_scale.floor", precision.loss_scale.floor, "1", 0x1p-24, 0x1p32, RECORDED,
         .help = "of fp16: least factor"),

    // ---- what happens when numbers go wrong
    CHOICE("policy.nan.mode", policy.nan.mode, "skip", "count, skip, stop", RECORDED,
           .help =
               "a gradient that is not finite: only count it, skip the update, or stop the run"),
    INT("policy.nan.limit", policy.nan.limit, "10", 1, 1e9, RECORDED, "steps",
        .help = "of skip: this many in a row stop the run"),
    CHOICE("policy.spike.mode", policy.spike.mode, "off", "off, count, skip, stop", RECORDED,
           .help = "a gradient norm far above the recent ones"),
    REAL("policy.spike.threshold", policy.spike.threshold, "20", 1, 1e9, RECORDED,
         .help = "times the median of the last 64 norms"),
    INT("policy.spike.warmup", policy.spike.warmup, "16", 1, 64, RECORDED, "steps",
        .help = "norms that must have been seen before it acts", .also = "window"),
    INT("policy.spike.limit", policy.spike.limit, "10", 1, 1e9, RECORDED, "steps",
        .help = "of skip: this many in a row stop the run"),

    // ---- what a result may depend on
    CHOICE("determinism.mode", determinism.mode, "fast", "fast, strict", FIXED,
           .help =
               "fast: same bits for the same layout; strict: for every layout, micro-batch, thread "
               "count and restart"),
    INT("determinism.shards", determinism.shards, "8", 1, 64, FIXED, "",
        .help = "of strict: parts of the global batch whose gradients are summed by a fixed tree"),
    INT("determinism.tp_shards", determinism.tp_shards, "1", 1, 64, FIXED, "",
        .help = "of strict: parts of sums inside a matrix; layout.tp must divide it"),
    INT("determinism.cp_shards", determinism.cp_shards, "1", 1, 64, FIXED, "",
        .help = "of strict: parts of a sequence; layout.cp must divide it"),
    CHOICE(
        "layout.mode", layout.mode, "given", "given, auto", FREE,
        .help =
            "auto: `train` takes the layout that the planner finds fastest on this machine, or for "
            "the ranks that it is started as; layout keys that are given stay"),
    INT("layout.dp", layout.dp, "1", 1, 1 << 20, FREE, "ranks", .help = "data parallelism",
        .also = "data_parallel"),
    INT("layout.tp", layout.tp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "tensor parallelism: matrices are cut", .also = "tensor_parallel, tp_size"),
    INT("layout.pp", layout.pp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "pipeline parallelism: layers are cut", .also = "pipeline_parallel, pp_size"),
    INT("layout.cp", layout.cp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "context parallelism: sequences are cut", .also = "context_parallel, cp_size"),
    INT("layout.ep", layout.ep, "1", 1, 1 << 20, FREE, "ranks",
        .help = "of `simulate` and `plan`: expert parallelism: so many ranks of dp x cp, with "
                "layout.etp=1 of tp x cp x dp, share the experts of a layer",
        .also = "expert_parallel, ep_size"),
    INT("layout.etp", layout.etp, "0", 0, 1 << 20, FREE, "ranks",
        .help =
            "of `simulate` and `plan`: ranks of tp that cut an expert's matrices: as many as tp, or "
            "1: experts stay whole, and tp's ranks share them; 0 is as many, or 1 where layout.ep "
            "asks for more ranks than dp x cp, with layout.sp",
        .also = "expert_tensor_parallel, etp_size"),
    INT("layout.vpp", layout.vpp, "0", 0, 64, FREE, "chunks",
        .help =
            "of pp: pieces of the model that each rank has, for schedules with several; 0 is as "
            "many as the schedule needs",
        .also = "virtual_pipeline, interleave"),
    INT("layout.zero", layout.zero, "0", 0, 3, FREE, "",
        .help =
            "ZeRO stage: 1 cuts the optimizer's state over the ranks of dp and cp, 2 gradients too, "
            "3 weights",
        .also = "zero_stage"),
    INT("layout.zero_group", layout.zero_group, "0", 0, 1 << 20, FREE, "ranks",
        .help = "of ZeRO: so many dp ranks, with those of cp, share one copy of what is cut; 0 is "
                "all of them",
        .also = "hybrid_shard"),
    CHOICE(
        "layout.zero_sums", layout.zero_sums, "microbatch", "microbatch, step", FREE,
        .help =
            "of ZeRO-2 and 3: microbatch sums gradients over those ranks in each micro-batch and "
            "keeps a rank's rows of them; step keeps them whole and sums once in a step: "
            "less to send, and 4 bytes a parameter more",
        .also = "no_sync, requires_gradient_sync"),
    OTHER("layout.sp", BOOL, layout.sp, "false", FREE,
          .help = "of tp: norms and residuals are cut by rows of tokens",
          .also = "sequence_parallel"),
    INT("layout.cp_heads", layout.cp_heads, "1", 1, 1 << 20, FREE, "ranks",
        .help = "of cp: the part of it that is done over heads: ranks exchange positions for heads",
        .also = "ulysses"),
    CHOICE("layout.cp_ring", layout.cp_ring, "auto", BOOL_WORDS, FREE,
           .help = "of cp, what is not done over heads: keys and values travel from rank to rank "
                   "instead of being gathered; auto is a ring where those gathered, with their "
                   "gradients, would take more than 64 MiB; strict order gathers",
           .also = "ring_attention"),
    OTHER(
        "layout.stages", LIST, layout.stages, NULL, FREE,
        .help =
            "of pp: decoder layers of each stage, such as [6, 7, 7, 4] or [8.5, 3.5], whose ninth "
            "layer is cut behind its attention, or [0, 12, 12, 0] with the embedding and the head "
            "alone at the ends; nothing is even"),
    OTHER("layout.schedule", PATH, layout.schedule, "1f1b", FREE, .choices = PIPELINE_WORDS,
          .help = "of pp: order of work, one of " PIPELINE_WORDS ", or a file",
          .also = "pipeline_schedule"),

    // ---- how gradients travel between ranks
    CHOICE("comm.compression.mode", comm.compression.mode, "none",
           "none, bf16, int8, fp8, topk, onebit", RECORDED,
           .help = "gradients travel between ranks in fewer bytes, which changes the result: int8 "
                   "and fp8 in blocks with a scale; topk and onebit add what they lose to the next "
                   "step's",
           .also = "grad_compression, gradient_compression"),
    REAL("comm.compression.bound", comm.compression.bound, "0", 0, 1, RECORDED,
         .help = "relative error of a bucket above which all ranks go on without compression; 0 is "
                 "the codec's own: bf16 0.005, int8 and fp8 0.05, topk and onebit none"),
    REAL("comm.compression.keep", comm.compression.keep, "0.01", 1e-6, 1, RECORDED,
         .help = "of topk: share of the values that travels"),
    INT("comm.compression.warmup", comm.compression.warmup, "100", 0, 1e9, RECORDED, "steps",
        .help = "of topk and onebit: at the beginning gradients travel whole"),
    CHOICE("comm.transport", comm.transport, "auto", "auto, shm, ucx, mpi", FREE,
           .help = "what carries bytes between ranks: auto is shared memory inside a host and UCX "
                   "between hosts; mpi is the Open MPI whose mpirun started the ranks"),
    OTHER("comm.tuning", PATH, comm.tuning, NULL, RECORDED,
          .help = "table of the fastest algorithms between ranks, written by `trireme bench comm "
                  "--tune FILE`; nothing is the built-in choices"),

    // ---- the fleet, of `simulate` and `plan`
    REAL("fleet.mtbf_device_h", fleet.mtbf_device_h, "0", 0, 1e15, FREE,
         .help =
             "of `simulate` and `plan`: device-hours between two failures that stop the run; 0 is "
             "the cluster's",
         .also = "mtbf, mttf"),
    REAL("fleet.repair_h", fleet.repair_h, "0", 0, 1e9, FREE,
         .help =
             "of `simulate` and `plan`: hours until a node that failed is back; 0 is the cluster's",
         .also = "mttr"),
    INT("fleet.spares", fleet.spares, "-1", -1, 1e9, FREE, "devices",
        .help = "of `simulate` and `plan`: devices that stand ready for those in repair; -1 is as "
                "many as are needed",
        .also = "spare_nodes"),
    CHOICE("price.kind", price.kind, "auto", "auto, on-demand, reserved, owned, spot", FREE,
           .help =
               "of `simulate` and `plan`: which of the cluster's prices; with spot nodes are taken "
               "away at its rate; auto is the first that is known"),
    REAL("price.device_hour", price.device_hour, "0", 0, 1e9, FREE,
         .help = "of `simulate` and `plan`: US dollars for a device and hour; 0 is the cluster's",
         .also = "gpu_hour, device_usd_h"),
    REAL("price.kwh", price.kwh, "0", 0, 1e9, FREE,
         .help = "of `simulate` and `plan`: US dollars for a kWh, on top; 0 is that the device's "
                 "price has it",
         .also = "electricity, kwh_usd"),

    INT("cluster.devices", cluster.devices, "0", 0, 1 << 24, FREE, "devices",
        .help =
            "of `simulate` and `plan`: devices that the run has; layout.dp follows from them where "
            "it is not given; 0 is as many as the layout wants",
        .also = "gpus, world_size, num_devices"),
    OTHER("profile", TEXT, profile, "trireme", FREE,
          .help = "of `simulate` and `plan`: whose habits are priced: kernels, overlaps, kept "
                  "activations; trireme is what this program does"),
    OTHER("flops_convention", TEXT, flops_convention, "causal", FREE,
          .help =
              "of `simulate` and `plan`: how `mfu` counts FLOPs; causal is this project's, with "
              "half of causal attention"),

    // ---- what is told
    OTHER("trace.steps", RANGE, trace.steps, NULL, FREE,
          .help = "write a Chrome trace of these steps, such as 10:12"),
    INT("log.every", log.every, "10", 1, 1e9, FREE, "steps",
        .help = "steps per line of the log; the metrics file has every step",
        .also = "log_interval, logging_steps"),
    CHOICE("log.format", log.format, "text", "text, json", FREE, .help = "form of the log's lines"),
};

const option_table run_config_table = {
    .title = "Configuration of a run",
    .rows = rows,
    .count = COUNT_OF(rows),
};
_Static_assert((int)STEP_HISTORY == 64, "the limits and help of policy.spike say 64");
