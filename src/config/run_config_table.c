// The rows of run_config: every key of a run file, with its default, limits and help. Help, man
// page, JSON schema and the configuration reference are made from these rows.
#include "config/run_config_rows.h"

static const option rows[] = {
    OTHER("run.dir", PATH, run.dir, "run", FREE,
          .help = "folder of the run, which holds its checkpoints, metrics and logs",
          .also = "out_dir, output_dir, save"),

    // ---- model state and length of the run
    CHOICE("train.objective", train.objective, "pretrain", RUN_OBJECTIVE_NAMES, FIXED,
           .help = "what is learnt from the data: pretrain predicts each token of texts; sft the "
                   "answers of conversations and instructions (data.format); dpo and orpo prefer "
                   "a chosen answer to a rejected one; kto learns from single answers that are "
                   "wanted or not; grpo from groups of answers with rewards",
           .also = "stage, task"),
    REAL("objective.beta", objective.beta, "0.1", 1e-6, 1e6, FIXED,
         .help = "strength of the preference, with train.objective=dpo, orpo or kto: a large beta "
                 "keeps the model near the reference"),
    CHOICE(
        "objective.loss", objective.loss, "auto",
        "auto, sigmoid, ipo, robust, hinge, grpo, bnpo, dr_grpo", FIXED,
        .help =
            "loss of a pair, with train.objective=dpo: sigmoid (auto), ipo, robust or hinge; "
            "what the loss of an answer is divided by, with grpo: its tokens (grpo, auto), "
            "nothing, so that each token has the same weight (bnpo), or objective.length (dr_grpo)",
        .also = "loss_type"),
    REAL("objective.clip", objective.clip, "0.2", 0, 1, FIXED,
         .help = "how far the ratio to the probability of drawing may fall below 1, with "
                 "train.objective=grpo",
         .also = "epsilon, cliprange"),
    REAL("objective.clip_high", objective.clip_high, "0", 0, 100, FIXED,
         .help = "how far that ratio may rise above 1; 0 is objective.clip",
         .also = "epsilon_high"),
    REAL("objective.kl", objective.kl, "0", 0, 1e6, FIXED,
         .help = "weight of the divergence from the reference model, with train.objective=grpo",
         .also = "kl_coef"),
    CHOICE("objective.scale", objective.scale, "group", "group, none", FIXED,
           .help = "what advantages are divided by, with train.objective=grpo: the standard "
                   "deviation of a prompt's rewards (group), or nothing",
           .also = "scale_rewards"),
    INT("objective.length", objective.length, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "tokens that an answer's loss is divided by, with objective.loss=dr_grpo; 0 is "
                "train.seq",
        .also = "max_completion_length"),
    REAL("objective.label_smoothing", objective.label_smoothing, "0", 0, 0.49, FIXED,
         .help = "share of pairs that are taken to be labelled the wrong way round, with "
                 "train.objective=dpo and objective.loss=sigmoid or robust"),
    OTHER("objective.reference", PATH, objective.reference, "auto", FIXED, .choices = "auto, none",
          .help = "model that the answers are compared with, with train.objective=dpo or kto: a "
                  "folder of weights; auto is the model that the run begins with; none gives "
                  "every answer the log-probability 0",
          .also = "ref_model, reference_model"),
    REAL("objective.wanted", objective.wanted, "1", 0, 1e6, FIXED,
         .help = "weight of wanted answers, with train.objective=kto", .also = "desirable_weight"),
    REAL("objective.unwanted", objective.unwanted, "1", 0, 1e6, FIXED,
         .help = "weight of answers that are not wanted, with train.objective=kto",
         .also = "undesirable_weight"),
    OTHER("rollout.prompts", PATH, rollout.prompts, NULL, FIXED,
          .help =
              "prompts that the run draws completions of, with train.objective=grpo, instead of "
              "data.train: JSON lines with a prompt (a text or messages) and an answer",
          .also = "prompt_file"),
    INT("rollout.group", rollout.group, "8", 2, 4096, FIXED, "completions",
        .help = "completions of each prompt, whose rewards are compared with each other",
        .also = "num_generations, n"),
    INT("rollout.max_tokens", rollout.max_tokens, "64", 1, 1 << 24, FIXED, "tokens",
        .help = "most tokens of a completion; a prompt has the rest of train.seq",
        .also = "max_completion_length, max_new_tokens"),
    REAL("rollout.temperature", rollout.temperature, "1", 1e-3, 100, FIXED,
         .help = "temperature at which completions are drawn; their log-probabilities are those "
                 "at temperature 1"),
    REAL("rollout.top_p", rollout.top_p, "1", 1e-6, 1, FIXED,
         .help = "completions are drawn among the likeliest tokens that have this much "
                 "probability together; 1 is all"),
    INT("rollout.top_k", rollout.top_k, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "completions are drawn among this many likeliest tokens; 0 is all"),
    INT("rollout.seed", rollout.seed, "1", 0, 9007199254740992.0, FIXED, "",
        .help = "seed of the order of prompts and of the draws of completions"),
    INT("rollout.slots", rollout.slots, "0", 0, 1023, FREE, "completions",
        .help = "completions that a rank draws at once; changes speed and memory, and in strict "
                "order no bit; 0 is its share of the batch, at most 32",
        .also = "max_num_seqs"),
    INT("rollout.cache", rollout.cache, "0", 0, 1099511627776.0, FREE, "tokens",
        .help = "tokens in a rank's cache for all completions that it draws at once, in pages of "
                "16 that those of a group share; a completion begins when its longest form has "
                "its pages; in strict order changes no bit; 0 is train.seq for each",
        .also = "kv_cache, max_total_tokens"),
    INT("rollout.staleness", rollout.staleness, "0", 0, 64, FIXED, "steps",
        .help = "completions are drawn so many steps ahead, with older weights; the ratio of the "
                "loss is to the log-probabilities of those weights",
        .also = "async, off_policy, max_staleness"),
    CHOICE("reward.kind", reward.kind, "exact", "exact, regex, numeric, command, model, http",
           FIXED,
           .help = "reward of a completion, 1 or 0: it is the prompt's answer (exact); "
                   "reward.pattern occurs in it (regex); its last number, or the one that "
                   "reward.pattern finds, is the answer (numeric); reward.command ends with exit "
                   "code 0 (command). Any number: the score of reward.model (model); the answer of "
                   "the service at reward.url (http)",
           .also = "reward_func, reward_fn"),
    OTHER("reward.pattern", TEXT, reward.pattern, NULL, FIXED,
          .help = "regular expression (PCRE2) for reward.kind=regex, in which {answer} stands for "
                  "the prompt's answer, or numeric, whose first group is the number"),
    OTHER("reward.command", TEXT, reward.command, NULL, FIXED,
          .help = "command for reward.kind=command; it runs confined in a folder with the files "
                  "prompt, completion and answer"),
    OTHER("reward.time_limit", TIME, reward.time_limit_ns, "10s", FIXED, .min = 1, .max = 9e18,
          .help = "time of reward.command, after which the reward is 0, or of one request to "
                  "reward.url"),
    OTHER("reward.memory_limit", BYTES, reward.memory_limit, "1GiB", FIXED, .min = 1, .max = 9e18,
          .help = "memory of each process of reward.command"),
    OTHER("reward.model", PATH, reward.model, NULL, FIXED,
          .help =
              "reward model for reward.kind=model: a checkpoint of train.objective=reward, or a "
              "Hugging Face folder for sequence classification with one label and the run's "
              "tokenizer",
          .also = "reward_model_path"),
    OTHER("reward.url", TEXT, reward.url, NULL, RECORDED,
          .help =
              "service for reward.kind=http, http://HOST:PORT/PATH: each completion is posted as "
              "JSON with prompt, completion and answer, and a number comes back, or JSON with "
              "reward",
          .also = "reward_url"),
    INT("reward.retries", reward.retries, "3", 0, 100, FREE, "requests",
        .help = "how often a failed request to reward.url is sent again before the run ends"),
    INT("train.steps", train.steps, "1000", 1, 1e12, RECORDED, "optimizer steps",
        .help = "number of optimizer steps of the run",
        .also = "max_steps, max_iters, iterations, train_iters"),
    INT("train.seq", train.seq, "256", 1, 1 << 24, FIXED, "tokens", .help = "length of a sequence",
        .also = "seq_length, seq_len, block_size, max_seq_len"),
    INT("train.global_batch", train.global_batch, "8", 1, 1 << 24, RECORDED, "sequences",
        .help = "number of sequences per optimizer step",
        .also = "batch_size, batch, global_batch_size"),
    INT("train.micro_batch", train.micro_batch, "0", 0, 1 << 24, FREE, "sequences",
        .choices = "auto", .word = RUN_MICRO_BATCH_AUTO,
        .help = "number of sequences that a rank computes at once; changes memory and speed, "
                "not the result; 0 takes the largest divisor of the batch with at most 4096 "
                "tokens, or half of that or less where activations would take much memory; "
                "auto, and also 0 with layout=auto, takes the value that the planner finds "
                "fastest, on a CPU the smallest within 1% of that",
        .also = "micro_batch_size, device_batch_size, per_device_batch_size"),
    CHOICE("train.precision", train.precision, "fp32", "fp32, bf16, fp16, fp8", RECORDED,
           .help = "type of activations and of the inputs of GEMMs; fp8 is bf16 with the GEMMs of "
                   "the layers in fp8 (precision.fp8), which a CPU computes in bf16",
           .also = "dtype"),
    CHOICE("train.recompute", train.recompute, "auto", "none, selective, full, auto", FREE,
           .help = "values that the backward pass recomputes instead of keeping them, with the "
                   "same bits; selective recomputes everything except GEMMs and attention; auto "
                   "takes selective where that saves a tenth of a large run's memory for 2% of "
                   "its work, and none elsewhere",
           .also = "activation_checkpointing, gradient_checkpointing"),
    INT("train.recompute_layers", train.recompute_layers, "0", 0, 1 << 20, FREE, "layers",
        .choices = "all",
        .help = "number of decoder layers that recompute under train.recompute=selective or "
                "full, spread evenly over the model; 0 or all is all of them",
        .also = "recompute_num_layers, activations_checkpoint_num_layers"),
    INT("train.seed", train.seed, "1", 0, 9007199254740992.0, FIXED, "",
        .help = "seed of initial weights, data order, dropout and stochastic rounding",
        .also = "random_seed"),
    OTHER("train.freeze", LIST, train.freeze, NULL, FIXED,
          .help = "weights that keep their values: patterns of their names, such as embed.* or "
                  "layers.[0-3].*; they have no gradient and no optimizer state, and the backward "
                  "pass computes no gradient below the first trained weight",
          .also = "frozen, freeze_layers"),
    CHOICE("adapter.kind", adapter.kind, "none", "none, lora, rslora, dora", FIXED,
           .help = "low-rank terms that are trained instead of the weights, which keep their "
                   "values: lora; rslora divides by the root of the rank; dora trains the length "
                   "of each row too; none trains the weights",
           .also = "peft_type, lora, use_lora, adapter, finetuning_type"),
    INT("adapter.rank", adapter.rank, "8", 1, 1 << 16, FIXED, "",
        .help = "rank of the adapter's matrices", .also = "lora_r, lora_rank, r"),
    REAL("adapter.alpha", adapter.alpha, "16", 0, 1e9, FIXED,
         .help = "the adapter's terms are multiplied by alpha / rank, with rslora by alpha / the "
                 "root of the rank",
         .also = "lora_alpha"),
    OTHER("adapter.targets", LIST, adapter.targets, NULL, FIXED,
          .help = "matrices that get an adapter: names or patterns such as attn.q, mlp.*, "
                  "layers.[0-3].attn.out, or those of files (q_proj); all matrices of attention "
                  "and MLP if not given",
          .also = "target_modules, lora_target, lora_target_modules"),
    REAL("adapter.dropout", adapter.dropout, "0", 0, 0.999, FIXED,
         .help = "dropout probability of the input of an adapter", .also = "lora_dropout"),
    CHOICE("adapter.quantize", adapter.quantize, "none", "none, int8, nf4", FIXED,
           .help = "how the base model's matrices of attention and MLP are held while an adapter "
                   "trains: blocks of 64 columns in int8 or nf4 with a scale each, which products "
                   "widen where they read them (QLoRA)",
           .also = "load_in_4bit, load_in_8bit, bnb_4bit_quant_type, quantization"),
    OTHER("adapter.from", PATH, adapter.from, NULL, FIXED,
          .help = "folder of PEFT (adapter_config.json, adapter_model.safetensors) with the "
                  "adapter that training begins with, and its kind, rank, alpha and targets",
          .also = "adapter_name_or_path, peft_model_id, lora_path"),
    OTHER("adapter.files", PATHS, adapter.files, NULL, FIXED,
          .help =
              "files with keys of several adapters (adapter.*, data.*, optimizer.* and others), "
              "which one job trains over one base model; each has the other keys of this file, "
              "and its own folder in run.dir, with the name of its file",
          .also = "adapters, lora_modules"),
    REAL("train.z_loss", train.z_loss, "0", 0, 1, RECORDED,
         .help = "weight of the z-loss, which is the squared logarithm of the softmax's sum"),
    REAL("train.mtp_loss", train.mtp_loss, "0", 0, 10, RECORDED,
         .help = "weight of the loss of model.mtp_layers, which is not reported; 0 takes 0.3",
         .also = "mtp_loss_scaling_factor, mtp_loss_weight"),
    REAL("moe.aux_loss", moe.aux_loss, "0", 0, 10, RECORDED,
         .help = "weight of the loss that balances the load of experts (Switch Transformer): "
                 "experts x the sum over experts of the share of rows that take it x its mean "
                 "probability; 0 is none",
         .also = "router_aux_loss_coef, aux_loss_alpha"),
    CHOICE("moe.aux_loss_scope", moe.aux_loss_scope, "sequence", "sequence, micro, batch", RECORDED,
           .help = "rows over which moe.aux_loss balances experts: each sequence, all sequences "
                   "of a rank's micro-batch, or the global batch, whose shares are those of the "
                   "step before, as a pipeline's backward begins before all tokens are routed"),
    REAL("moe.z_loss", moe.z_loss, "0", 0, 1, RECORDED,
         .help = "weight of the z-loss of routers, the squared logarithm of the sum of their "
                 "exponentials; 0 is none"),
    CHOICE("moe.dispatch", moe.dispatch, "auto", "auto, fp32, bf16, fp8", RECORDED,
           .help = "type of rows that travel between ranks that share experts: auto is that of "
                   "activations; with fp8 rows go to experts in 8 bits with a factor each, and "
                   "results and gradients in bf16; in strict mode one rank rounds them too"),
    INT("moe.rebalance", moe.rebalance, "off", 1, 1e12, FREE, "steps", .choices = "off", .word = 0,
        .help = "steps after which experts move between the ranks of layout.ep, with their "
                "optimizer state, so that each rank gets as many tokens as its load so far "
                "allows; results do not change by a bit; off leaves every expert where it is",
        .also = "eplb_interval, expert_rearrange_interval"),
    REAL("moe.capacity_factor", moe.capacity_factor, "0", 0, 1024, RECORDED,
         .help = "most tokens of a sequence that an expert takes, as a multiple of an even share; "
                 "further tokens leave it out in training; 0 is no limit, so that no token is "
                 "dropped",
         .also = "expert_capacity_factor, capacity_factor"),
    OTHER("train.batch_ramp", RAMP, train.batch_ramp, NULL, RECORDED, .min = 1, .max = 1 << 24,
          .help = "global batch from given steps on, such as {0: 8, 100: 16}, the first being 0"),
    OTHER("train.max_time", TIME, train.max_time, "0", FREE,
          .help = "time limit after which the run stops with a checkpoint and exit code 75; 0 "
                  "is no limit"),

    INT("train.tokens", train.tokens, "0", 0, 9e15, FREE, "tokens",
        .help = "length of the run in tokens, instead of train.steps, which follows from it; 0 is "
                "not given",
        .also = "total_tokens, max_tokens"),
    REAL("train.epochs", train.epochs, "0", 0, 1e9, FREE,
         .help = "length of the run in readings of the training data, instead of train.steps, "
                 "which follows from it; 0 is not given",
         .also = "num_train_epochs, max_epochs, num_epochs"),

    // ---- optimizer
    CHOICE("optimizer.name", optimizer.name, "adamw", RUN_OPTIMIZER_NAMES, FIXED,
           .help = "optimizer; muon updates two-dimensional weights except embeddings and head, "
                   "and AdamW updates the rest"),
    REAL("optimizer.lr", optimizer.lr, "3e-4", 0, 1e3, RECORDED, .help = "peak learning rate",
         .also = "learning_rate, max_lr, peak_lr"),
    REAL("optimizer.beta1", optimizer.beta1, "0.9", 0, 1, RECORDED,
         .help = "decay rate of AdamW's first moment; for Lion the moment's share in the direction",
         .also = "adam_beta1"),
    REAL("optimizer.beta2", optimizer.beta2, "0.95", 0, 1, RECORDED,
         .help = "decay rate of AdamW's second moment, and of Lion's only moment",
         .also = "adam_beta2"),
    REAL("optimizer.eps", optimizer.eps, "1e-8", 1e-30, 1, RECORDED,
         .help = "constant that AdamW adds to the square root of its second moment",
         .also = "adam_eps, epsilon"),
    REAL("optimizer.weight_decay", optimizer.weight_decay, "0.1", 0, 1e3, RECORDED,
         .help = "decoupled weight decay of weights with two or more dimensions", .also = "wd"),
    REAL("optimizer.clip", optimizer.clip, "1", 0, 1e30, RECORDED,
         .help = "largest norm of the whole gradient; 0 does not clip",
         .also = "grad_clip, clip_grad, max_grad_norm"),
    REAL("optimizer.momentum", optimizer.momentum, "0.95", 0, 1, RECORDED,
         .help = "momentum of the Muon optimizer"),
    OTHER("optimizer.nesterov", BOOL, optimizer.nesterov, "true", RECORDED,
          .help = "Nesterov momentum in the Muon optimizer"),
    CHOICE("optimizer.muon_lr_adjust", optimizer.muon_lr_adjust, "match_rms_adamw",
           "original, match_rms_adamw", RECORDED,
           .help = "rule by which Muon scales its step with a matrix's shape; with "
                   "match_rms_adamw one learning rate serves Muon and AdamW"),
    OTHER("optimizer.stochastic_rounding", BOOL, optimizer.stochastic_rounding, "false", RECORDED,
          .help = "stochastic rounding of weights and moments that are stored in narrow types, "
                  "so that small updates are not lost"),

    // ---- learning rate
    CHOICE("schedule.name", schedule.name, "cosine", "constant, linear, cosine, wsd, inverse_sqrt",
           RECORDED, .help = "rule of the learning rate after its warm-up",
           .also = "lr_scheduler, lr_decay_style"),
    INT("schedule.warmup", schedule.warmup, "0", 0, 1e12, RECORDED, "steps",
        .help = "steps in which the learning rate rises to its peak",
        .also = "warmup_steps, warmup_iters, lr_warmup"),
    CHOICE("schedule.warmup_from", schedule.warmup_from, "one", "zero, one, nanogpt", RECORDED,
           .help =
               "count of the first update in the warm-up: with one, update k of W has k / W of "
               "the peak; with nanogpt k / (W + 1); with zero, as in transformers and Megatron, "
               "(k - 1) / W, so the first update changes nothing; a run from before this key "
               "keeps zero",
           .also = "warmup_start, warmup_init"),
    REAL("schedule.min_ratio", schedule.min_ratio, "0", 0, 1, RECORDED,
         .help = "final learning rate of linear, cosine and WSD rules as a share of the peak",
         .also = "min_lr"),
    INT("schedule.decay_steps", schedule.decay_steps, "0", 0, 1e12, RECORDED, "steps",
        .help = "steps of the WSD decay at the end of the run; the WSD rule needs it",
        .also = "lr_decay_iters"),
    CHOICE("schedule.decay_shape", schedule.decay_shape, "linear", "linear, cosine, 1-sqrt",
           RECORDED, .help = "shape of the WSD decay"),
    INT("schedule.timescale", schedule.timescale, "0", 0, 1e12, RECORDED, "steps",
        .help = "timescale of the inverse_sqrt rule; 0 takes the warm-up, or 10000 without a "
                "warm-up"),

    // ---- validation and checkpoints
    INT("eval.every", eval.every, "200", 0, 1e12, FREE, "steps",
        .help = "interval between two computations of the validation loss; 0 is never",
        .also = "eval_interval, interval"),
    INT("eval.batches", eval.batches, "8", 1, 1 << 24, FREE,
        "batches of train.global_batch sequences",
        .help = "amount of held-out text that a validation uses, the same text each time",
        .also = "eval_iters, iters"),
    OTHER("eval.tasks", PATHS, eval.tasks, NULL, FREE,
          .help = "task files, as of eval --task, that are run on the weights while the run "
                  "trains; the results go into the log and into metrics.jsonl",
          .also = "task, benchmarks"),
    INT("eval.tasks_every", eval.tasks_every, "0", 0, 1e12, FREE, "steps",
        .help = "interval between two runs of eval.tasks; each saves a checkpoint first; 0 runs "
                "them after the last step only"),
    INT("eval.tasks_limit", eval.tasks_limit, "0", 0, 1e12, FREE, "items",
        .help = "number of items after which each of eval.tasks stops; 0 is all"),
    OTHER("eval.tasks_template", TEXT, eval.tasks_template, NULL, FREE,
          .help = "chat template for the generation tasks of eval.tasks: each prompt is a user's "
                  "message; auto is data.template; without it prompts are used unchanged"),
    INT("checkpoint.every", checkpoint.every, "1000", 0, 1e12, FREE, "steps", .choices = "auto",
        .word = RUN_EVERY_AUTO,
        .help = "interval between two checkpoints; 0 writes one after the last step only; auto "
                "takes the best one for the measured cost of a save and the losses so far",
        .also = "save_interval, interval"),
    INT("checkpoint.keep", checkpoint.keep, "3", 1, 1e6, FREE, "checkpoints",
        .help = "number of newest checkpoints that are kept, at least 2, in addition to the "
                "best one",
        .also = "save_total_limit"),
    INT("checkpoint.keep_every", checkpoint.keep_every, "0", 0, 1e12, FREE, "steps",
        .help = "interval of the checkpoints that are kept for ever; 0 keeps none"),
    OTHER("checkpoint.tiers", TEXT, checkpoint.tiers, NULL, FREE,
          .help =
              "intervals of the tiers in one key, such as `buddy:1, memory:20, disk:500, "
              "durable:5000:/mnt/store`: copies in other ranks and in the machine's memory, "
              "checkpoints in the run's folder, and of those every so many steps one in another "
              "folder; it replaces resilience.buddy.ranks, resilience.buddy.every and "
              "checkpoint.every"),
    OTHER("checkpoint.scrub", TIME, checkpoint.scrub, "24h", FREE,
          .help =
              "time between two readings of all checkpoints of the run, in the background, which "
              "find bits that rot on the disk and rebuild them from another copy; 0 is never"),
    OTHER("checkpoint.async", BOOL, checkpoint.async, "true", FREE,
          .help = "asynchronous checkpoints: a step waits only until the state is copied, and "
                  "the run writes the copy during later steps; no needs no memory for the copy",
          .also = "async_save"),
    REAL("checkpoint.write_s", checkpoint.write_s, "0", 0, 1e9, FREE,
         .help = "seconds for which one checkpoint stalls the run, for `simulate` and `plan`; "
                 "0 computes them from its bytes and the cluster"),
    REAL("checkpoint.restart_s", checkpoint.restart_s, "0", 0, 1e9, FREE,
         .help = "seconds from a failure to the first new step, for `simulate` and `plan`; 0 "
                 "takes the cluster's value"),
    REAL("checkpoint.interval_s", checkpoint.interval_s, "0", 0, 1e9, FREE,
         .help = "seconds of work between two checkpoints, for `simulate` and `plan`; 0 is "
                 "the optimal interval",
         .also = "checkpoint_interval"),

    // ---- lost ranks
    CHOICE("resilience.mode", resilience.mode, "off", "off, restart, live", FREE,
           .help =
               "what happens when a rank is lost: off ends the run, which continues from its "
               "newest checkpoint with the same command; restart starts all ranks again from "
               "the state that is kept in the machine's memory, which must hold three copies of "
               "it; live replaces the lost rank alone, and the others go on from that state in "
               "their processes, also on several hosts, where it needs resilience.buddy.ranks",
           .also = "max_restarts, fault_tolerance, elastic"),
    INT("resilience.buddy.every", resilience.buddy.every, "1", 1, 1e12, FREE, "steps",
        .help = "interval between two copies of the state in memory; at most this many steps are "
                "computed again after a loss"),
    INT("resilience.buddy.ranks", resilience.buddy.ranks, "0", 0, 1e12, FREE, "steps",
        .help =
            "interval between two copies of each rank's part of the state in its own memory and, "
            "where no other rank holds it anyway, in that of another rank, its buddy; after a "
            "loss the run goes on from them and reads no file; 0 makes none"),
    INT("resilience.spares", resilience.spares, "0", 0, 128, FREE, "processes",
        .help =
            "processes that wait, with plans and memory, for the place of a lost rank; one that "
            "got a place is followed by another"),
    INT("resilience.min_ranks", resilience.min_ranks, "0", 0, 256, FREE, "ranks",
        .help = "fewest ranks with which the run goes on when ranks are lost and no spare is left; "
                "it continues with a smaller layout and grows when processes join (`trireme train "
                "RUN --join`); 0 starts a new process for each lost rank instead",
        .also = "min_nodes, nnodes"),
    OTHER("resilience.join_timeout", TIME, resilience.join_timeout, "5m", FREE,
          .help = "time for which a run with fewer than resilience.min_ranks ranks waits for "
                  "processes to join; then it stops with exit code 75"),
    CHOICE("resilience.straggler", resilience.straggler, "name", "off, name, move, evict", FREE,
           .help = "what happens when a rank is slower than the others: name writes its number and "
                   "the cause; move also lets the other data-parallel ranks take over a part of "
                   "its micro-batches, which in strict mode keeps the bits, and gives them back "
                   "when it is fast again; evict (resilience.mode = live) ends the rank, also one "
                   "whose GPU fails; a spare or new process takes its place, or the run shrinks"),
    SHARE("sdc.replay", sdc.replay, "0", FREE,
          .help =
              "share of the steps whose gradients each rank computes again, and another rank too, "
              "before the step, which names a rank that computes wrong values; the hashes of the "
              "state after them are recorded for `trireme replay`; 0.01 or 1% is every hundredth "
              "step"),
    SHARE("sdc.abft", sdc.abft, "0", FREE,
          .help =
              "share of the matrix products of layers, experts and the head that are checked by "
              "checksums: 1 is each, 0.01 one in a hundred; a wrong one is computed again"),
    INT("sdc.digests", sdc.digests, "0", 0, 1e12, FREE, "steps",
        .help = "interval between two comparisons of the weights, optimizer state and summed "
                "gradients that several ranks hold, which finds values that a processor or memory "
                "has changed; what a rank alone holds, such as shards of ZeRO, is compared with "
                "what it wrote; 0 is never"),

    // ---- model
    OTHER("model.preset", TEXT, model.preset, NULL, FIXED,
          .help = "name of a model, such as gpt2-124m or llama-135m; other model keys change "
                  "its sizes",
          .also = "name"),
    OTHER("model.from", PATH, model.from, NULL, FIXED,
          .help = "Hugging Face folder whose model and weights the run continues to train",
          .also = "init_from, path"),
    CHOICE("model.arch", model.arch, "auto", "auto, gpt2, llama, mistral, qwen2, qwen3", FIXED,
           .help = "architecture of a model that is given by its sizes; auto is llama",
           .also = "type, architecture"),
    INT("model.layers", model.layers, "0", 0, 1e4, FIXED, "",
        .help = "number of decoder layers; 0 takes the preset's",
        .also = "n_layer, num_layers, num_hidden_layers"),
    INT("model.dim", model.dim, "0", 0, 1 << 20, FIXED, "",
        .help = "width of the model; 0 takes the preset's", .also = "n_embd, hidden_size, d_model"),
    INT("model.heads", model.heads, "0", 0, 1 << 16, FIXED, "",
        .help = "number of attention heads; 0 takes the preset's",
        .also = "n_head, num_heads, num_attention_heads"),
    INT("model.kv_heads", model.kv_heads, "0", 0, 1 << 16, FIXED, "",
        .help = "number of heads of keys and values; 0 takes the preset's, or model.heads",
        .also = "n_kv_head, num_key_value_heads"),
    INT("model.head_dim", model.head_dim, "0", 0, 256, FIXED, "",
        .help = "width of a head; 0 takes the preset's, or dim / heads"),
    INT("model.ffn_dim", model.ffn_dim, "0", 0, 1 << 22, FIXED, "",
        .help = "width of the MLP; 0 takes the preset's, or the usual width for dim",
        .also = "intermediate_size, d_ff"),
    INT("model.experts", model.experts, "0", 0, 1 << 16, FIXED, "",
        .help = "number of experts that replace the MLP of a layer; 0 takes the preset's, or none",
        .also = "num_experts, num_local_experts, n_routed_experts, moe_num_experts"),
    INT("model.experts_per_token", model.experts_per_token, "0", 0, 1 << 16, FIXED, "",
        .help = "number of experts that a token uses; 0 takes the preset's, or 2",
        .also = "num_experts_per_tok, top_k, moe_top_k"),
    INT("model.shared_experts", model.shared_experts, "0", 0, 1 << 10, FIXED, "",
        .help = "number of experts that every token uses; 0 takes the preset's, or none",
        .also = "n_shared_experts"),
    INT("model.expert_ffn_dim", model.expert_ffn_dim, "0", 0, 1 << 22, FIXED, "",
        .help = "width of one expert; 0 takes the preset's, or model.ffn_dim",
        .also = "moe_intermediate_size"),
    INT("model.dense_layers", model.dense_layers, "0", 0, 1e4, FIXED, "",
        .help = "number of layers at the bottom that have an MLP instead of experts; 0 takes the "
                "preset's, or none",
        .also = "first_k_dense_replace"),
    CHOICE("model.router.score", model.router.score, "auto", "auto, softmax, sigmoid", FIXED,
           .help = "scores by which a token chooses its experts; auto takes sigmoid with "
                   "model.router.bias_rate, otherwise the preset's or architecture's choice",
           .also = "scoring_func, moe_router_score_function"),
    INT("model.router.groups", model.router.groups, "0", 0, 1 << 16, FIXED, "",
        .help = "number of groups of experts, of which a token uses model.router.top_groups; 0 "
                "takes the preset's, or none",
        .also = "n_group, moe_router_num_groups"),
    INT("model.router.top_groups", model.router.top_groups, "0", 0, 1 << 16, FIXED, "",
        .help = "number of groups whose experts a token chooses among; 0 takes the preset's",
        .also = "topk_group, moe_router_group_topk"),
    REAL("model.router.scale", model.router.scale, "0", 0, 1e6, FIXED,
         .help = "factor of the weights of a token's experts; 0 takes the preset's, or 1",
         .also = "routed_scaling_factor, moe_router_topk_scaling_factor"),
    CHOICE("model.router.normalize", model.router.normalize, "auto", BOOL_WORDS, FIXED,
           .help = "weights of a token's experts add up to 1; auto takes the preset's or "
                   "architecture's choice",
           .also = "norm_topk_prob"),
    REAL("model.router.bias_rate", model.router.bias_rate, "0", 0, 1, RECORDED,
         .help = "balances experts without a loss, as DeepSeek-V3 does: after each step a bias "
                 "for the choice of an expert rises by this rate if the global batch gave it less "
                 "than the mean load, and falls if more; 0 leaves the bias as it is",
         .also = "moe_router_bias_update_rate, bias_update_speed"),
    INT("model.mtp_layers", model.mtp_layers, "auto", 0, 1, FIXED, "layers", .choices = "auto",
        .word = -1,
        .help = "layers that predict the token after the next; auto: those of model.from, or none",
        .also = "num_nextn_predict_layers, mtp_num_layers"),
    INT("model.vocab", model.vocab, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "size of the vocabulary; 0 takes the preset's, or the tokenizer's",
        .also = "vocab_size, n_vocab"),
    INT("model.context", model.context, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "longest sequence of the model; 0 takes the preset's, or train.seq",
        .also = "n_positions, max_position_embeddings, n_ctx"),
    INT("model.window", model.window, "0", 0, 1 << 24, FIXED, "tokens",
        .help = "attention window: a query attends to itself and to the window - 1 positions "
                "before it; 0 takes the preset's, or attends to all",
        .also = "sliding_window"),
    REAL("model.rope_theta", model.rope_theta, "0", 0, 1e12, FIXED,
         .help = "base of the rotary frequencies; 0 takes the preset's, or 10000"),
    REAL("model.norm_eps", model.norm_eps, "0", 0, 1, FIXED,
         .help = "epsilon of the norms; 0 takes the preset's, or 1e-5",
         .also = "rms_norm_eps, layer_norm_epsilon"),
    REAL("model.dropout", model.dropout, "0", 0, 0.99, FIXED,
         .help = "share of embedding, attention and residual values that training sets to zero"),
    CHOICE("model.tied", model.tied, "auto", BOOL_WORDS, FIXED,
           .help = "one matrix for embedding and head; auto takes the preset's or "
                   "architecture's choice",
           .also = "tie_word_embeddings, tie_embeddings"),
    CHOICE("model.attention_bias", model.attention_bias, "auto", BOOL_WORDS, FIXED,
           .help = "biases of the attention's projections; auto takes the preset's or "
                   "architecture's choice",
           .also = "bias"),
    CHOICE("model.mlp_bias", model.mlp_bias, "auto", BOOL_WORDS, FIXED,
           .help = "biases of the MLP; auto takes the preset's or architecture's choice"),
    CHOICE("model.qk_norm", model.qk_norm, "auto", BOOL_WORDS, FIXED,
           .help = "norm over each head of queries and keys; auto takes the preset's or "
                   "architecture's choice"),

    // ---- data
    OTHER("data.train", PATHS, data.train, NULL, FIXED,
          .help = "texts, JSON lines or token files of the training data: a path, a list, "
                  "globs, or paths with weights; or folders that data build made",
          .also = "path, dataset, file, files, text"),
    OTHER("data.valid", SHARE, data.valid, "0.05", FIXED, .min = 0, .max = 0.99,
          .help = "held-out text: a share of data.train, or files; 0 is none",
          .also = "val, validation, eval, test"),
    OTHER("data.tokenizer", PATH, data.tokenizer, "auto", FIXED, .choices = "auto, bytes",
          .help = "tokenizer: bytes, a tokenizer.json, or a folder with one or with vocab.json "
                  "and merges.txt; auto takes the one in model.from, or that of the first folder "
                  "in data.train that data build made, or bytes"),
    CHOICE("data.format", data.format, "auto", "auto, text, messages, prompt, alpaca, sharegpt",
           FIXED,
           .help = "what a line of data.train holds, with train.objective=sft: text; messages with "
                   "role and content; prompt and completion; instruction, input and output "
                   "(alpaca); conversations (sharegpt); auto looks at the first line's keys"),
    OTHER("data.template", PATH, data.chat_template, "auto", FIXED,
          .choices = "auto, none, chatml, llama3",
          .help = "chat template, with train.objective=sft: a file, chatml, llama3, or none; auto "
                  "is that of the tokenizer's folder",
          .also = "chat_template"),
    CHOICE("data.trained", data.trained, "all", "all, last", FIXED,
           .help = "turns of the assistant that are trained, with train.objective=sft: all of a "
                   "conversation, or the last",
           .also = "train_on, assistant_only_loss"),
    CHOICE("data.packing", data.packing, "masked", "masked, plain, best-fit", FIXED,
           .help = "documents in a sequence: masked cuts their stream into sequences and keeps "
                   "attention within each document, plain does not keep it; best-fit puts whole "
                   "documents together, with little padding, and keeps attention within each"),
    CHOICE("data.positions", data.positions, "auto", "auto, document, sequence", FIXED,
           .help = "where positions begin at 0: in each document or in each sequence; auto is "
                   "document, but sequence with data.packing=plain"),
    REAL("data.temperature", data.temperature, "0", 0, 1e6, FIXED,
         .help = "flattens the mix of the entries of data.train: the share of each is its weight, "
                 "or its number of tokens where none has a weight, to the power 1/temperature; 1 "
                 "takes them as they are, 0 mixes by the weights alone"),
    OTHER("data.curriculum", LIST, data.curriculum, NULL, FIXED,
          .help = "other weights of the sources of data.train from a step on, in their order: "
                  "1000=0.5:0.5,5000=0.9:0.1"),
    OTHER("data.exclude", PATH, data.exclude, NULL, FREE,
          .help =
              "list of documents that are not trained on from now on, by the name or hash that "
              "data trace shows, or of conversations and prompts, by FILE:LINE or their \"id\", "
              "one on each line; it may be given or changed when a run resumes"),
    CHOICE("data.special_tokens", data.special_tokens, "text", "text, tokens", FIXED,
           .help = "special tokens that are spelled in texts and prompts, such as <|endoftext|>: "
                   "text takes each as its letters, tokens as its token"),
    CHOICE("data.on_error", data.on_error, "stop", "stop, skip", FIXED,
           .help = "a line of JSON lines without a text: stop is an error, skip leaves the line "
                   "out and tells how many were skipped"),

    // ---- machine
    OTHER("memory.limit", BYTES, memory.limit, "0", FREE,
          .help = "memory of a rank; a run that needs more is refused; 0 is the rank's share "
                  "of the free memory",
          .also = "max"),
    CHOICE("kernels.level", kernels.level, "auto", "auto, scalar, avx2, avx512, avx512_bf16, amx",
           RECORDED, .help = "vector instructions; auto is the fastest level of this CPU",
           .also = "isa"),
    INT("kernels.threads", kernels.threads, "0", 0, 4096, FREE, "",
        .help = "number of threads of a rank; 0 is one per core", .also = "num_threads"),
    CHOICE("kernels.device", kernels.device, "cpu", "cpu, shadow, cuda", RECORDED,
           .help = "device; cuda is an NVIDIA GPU, shadow a test device that finishes work late"),
    CHOICE("kernels.backend", kernels.backend, "auto", "auto, cpu, ref", RECORDED,
           .help = "kernels; ref is the slow, plain reference for comparisons"),
    OTHER("kernels.graphs", BOOL, kernels.graphs, "true", FREE,
          .help = "on a GPU, captures the work of a step once and repeats it by one call; steps "
                  "that cannot be captured are posted call by call"),
    OTHER("kernels.keep_panels", BOOL, kernels.keep_panels, "false", FREE,
          .help = "packs the weights once per step instead of once per GEMM: faster with many "
                  "micro-batches, but takes twice the bytes of the weights in addition"),

    // ---- storage types
    CHOICE("precision.weights", precision.weights, "auto", STORED_WORDS, RECORDED,
           .help = "type of stored weights; auto is train.precision"),
    CHOICE("precision.grads", precision.grads, "auto", STORED_WORDS, RECORDED,
           .help = "type of gradient accumulators; auto is fp32"),
    CHOICE("precision.master", precision.master, "auto", "auto, fp32, none", RECORDED,
           .help = "fp32 copy of narrower weights that receives the updates; auto keeps one"),
    CHOICE("precision.moments", precision.moments, "auto", STORED_WORDS, RECORDED,
           .help = "type of the optimizer's state; auto is fp32"),
    CHOICE("precision.fp8", precision.fp8, "block", "block, tensor", FIXED,
           .help = "numbers that share a factor with train.precision=fp8: block is 128 of an "
                   "activation or gradient and 128 x 128 of a weight, all e4m3; tensor is a whole "
                   "operand, with gradients in e5m2 and the factor of its largest magnitude in the "
                   "last steps",
           .also = "fp8_recipe"),
    INT("precision.fp8_history", precision.fp8_history, "16", 1, 1024, FIXED, "steps",
        .help = "steps whose largest magnitude gives an operand its factor with "
                "precision.fp8=tensor",
        .also = "amax_history_len, fp8_amax_history_len"),
    INT("precision.fp8_margin", precision.fp8_margin, "0", 0, 16, FIXED, "",
        .help = "powers of two that are left free above the largest magnitude with "
                "precision.fp8=tensor",
        .also = "fp8_margin"),
    REAL("precision.loss_scale.initial", precision.loss_scale.initial, "65536", 1, 0x1p32, RECORDED,
         .help = "first loss scale of fp16"),
    INT("precision.loss_scale.window", precision.loss_scale.window, "2000", 1, 1e9, RECORDED,
        "steps", .help = "steps without overflow after which the loss scale of fp16 doubles"),
    INT("precision.loss_scale.hysteresis", precision.loss_scale.hysteresis, "2", 1, 1e6, RECORDED,
        "overflows", .help = "overflows after which the loss scale of fp16 halves"),
    REAL("precision.loss_scale.floor", precision.loss_scale.floor, "1", 0x1p-24, 0x1p32, RECORDED,
         .help = "smallest loss scale of fp16"),

    // ---- numerical faults
    CHOICE("policy.nan.mode", policy.nan.mode, "skip", "count, skip, stop", RECORDED,
           .help = "reaction to a gradient that is not finite: only count it, skip the update, "
                   "or stop the run"),
    INT("policy.nan.limit", policy.nan.limit, "10", 1, 1e9, RECORDED, "steps",
        .help = "number of consecutive skipped steps that stops the run, with policy.nan=skip"),
    CHOICE("policy.spike.mode", policy.spike.mode, "off", "off, count, skip, stop", RECORDED,
           .help = "reaction to a gradient norm far above the recent ones"),
    REAL("policy.spike.threshold", policy.spike.threshold, "20", 1, 1e9, RECORDED,
         .help = "smallest norm of a spike, in multiples of the median of the last 64 norms"),
    INT("policy.spike.warmup", policy.spike.warmup, "16", 1, 64, RECORDED, "steps",
        .help = "number of norms before the spike policy acts", .also = "window"),
    INT("policy.spike.limit", policy.spike.limit, "10", 1, 1e9, RECORDED, "steps",
        .help = "number of skipped steps in a row that stops the run, with policy.spike=skip"),

    // ---- determinism and layout
    CHOICE("determinism.mode", determinism.mode, "fast", "fast, strict", FIXED,
           .help = "reproducibility of the result: fast gives the same bits for the same "
                   "layout; strict gives the same bits for every layout, micro-batch, thread "
                   "count and restart"),
    INT("determinism.shards", determinism.shards, "8", 1, 64, FIXED, "",
        .help = "number of parts of the global batch whose gradients a fixed tree sums, in "
                "strict mode"),
    INT("determinism.tp_shards", determinism.tp_shards, "1", 1, 64, FIXED, "",
        .help = "number of parts of each sum inside a matrix, in strict mode; layout.tp must "
                "divide it"),
    INT("determinism.cp_shards", determinism.cp_shards, "1", 1, 64, FIXED, "",
        .help = "number of parts of a sequence, in strict mode; layout.cp must divide it"),
    INT("determinism.etp_shards", determinism.etp_shards, "1", 1, 64, FIXED, "",
        .help = "number of parts of each sum inside an expert, in strict mode; where tp shards "
                "experts, layout.tp must divide it"),
    CHOICE("layout.mode", layout.mode, "given", "given, auto", FREE,
           .help = "source of the layout: with auto, `train` takes the layout that the planner "
                   "finds fastest on this machine, or for the ranks that were started; given "
                   "layout keys stay"),
    INT("layout.dp", layout.dp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "degree of data parallelism", .also = "data_parallel"),
    INT("layout.tp", layout.tp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "degree of tensor parallelism, which shards matrices",
        .also = "tensor_parallel, tp_size"),
    INT("layout.pp", layout.pp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "degree of pipeline parallelism, which distributes layers",
        .also = "pipeline_parallel, pp_size"),
    INT("layout.cp", layout.cp, "1", 1, 1 << 20, FREE, "ranks",
        .help = "degree of context parallelism, which shards sequences",
        .also = "context_parallel, cp_size"),
    INT("layout.ep", layout.ep, "1", 1, 1 << 20, FREE, "ranks",
        .help = "degree of expert parallelism: this many ranks of dp x cp, or of tp x cp x dp "
                "with layout.etp=1, share the experts of a layer",
        .also = "expert_parallel, ep_size"),
    INT("layout.etp", layout.etp, "0", 0, 1 << 20, FREE, "ranks",
        .help = "number of tp ranks that shard an expert's matrices: as many as tp (only for "
                "`simulate` and `plan`), or 1, where experts stay whole and the tp ranks "
                "share them; 0 is as many as tp, or 1 where layout.ep needs more ranks than "
                "dp x cp, with layout.sp",
        .also = "expert_tensor_parallel, etp_size"),
    INT("layout.vpp", layout.vpp, "0", 0, 64, FREE, "chunks",
        .help = "number of pieces of the model per pp rank, for schedules with several; 0 is "
                "as many as the schedule needs",
        .also = "virtual_pipeline, interleave"),
    INT("layout.zero", layout.zero, "0", 0, 3, FREE, "",
        .help = "ZeRO stage: 1 shards the optimizer's state over the ranks of dp and cp, 2 "
                "also the gradients, 3 also the weights",
        .also = "zero_stage"),
    INT("layout.zero_group", layout.zero_group, "0", 0, 1 << 20, FREE, "ranks",
        .help = "number of dp ranks that, with those of cp, share one copy of the state that "
                "ZeRO shards; 0 is all of them",
        .also = "hybrid_shard"),
    CHOICE("layout.zero_sums", layout.zero_sums, "microbatch", "microbatch, step", FREE,
           .help = "time of the gradient sums of ZeRO-2 and 3: microbatch sums over those ranks "
                   "in each micro-batch, and each rank keeps its rows; step keeps whole "
                   "gradients and sums once per step, which sends less and takes 4 bytes more "
                   "per parameter",
           .also = "no_sync, requires_gradient_sync"),
    OTHER("layout.sp", BOOL, layout.sp, "false", FREE,
          .help = "sequence parallelism: the ranks of tp also shard norms and residuals, by "
                  "rows of tokens",
          .also = "sequence_parallel"),
    INT("layout.cp_heads", layout.cp_heads, "1", 1, 1 << 20, FREE, "ranks",
        .help = "degree of the part of cp that runs over heads, where ranks exchange "
                "positions for heads",
        .also = "ulysses"),
    CHOICE("layout.cp_ring", layout.cp_ring, "auto", BOOL_WORDS, FREE,
           .help = "ring for the part of cp that does not run over heads: keys and values pass "
                   "from rank to rank instead of being gathered; auto takes a ring where the "
                   "gathered keys and values, with their gradients, would take more than 64 "
                   "MiB; strict mode gathers",
           .also = "ring_attention"),
    OTHER("layout.stages", LIST, layout.stages, NULL, FREE,
          .help = "decoder layers of each pipeline stage, such as [6, 7, 7, 4] or [8.5, 3.5], "
                  "which splits the ninth layer after its attention, or [0, 12, 12, 0], with "
                  "the embedding and the head alone at the ends; empty is even"),
    OTHER("layout.shares", LIST, layout.shares, NULL, FREE,
          .help = "parts of a step's sequences that each data-parallel rank takes, such as [2, 2, "
                  "2, 1] where the fourth is half as fast; in strict mode they are whole shards "
                  "(determinism.shards), and the result does not depend on them; empty is even"),
    OTHER("layout.schedule", PATH, layout.schedule, "1f1b", FREE, .choices = PIPELINE_WORDS,
          .help = "pipeline schedule, one of " PIPELINE_WORDS ", or a file",
          .also = "pipeline_schedule"),

    // ---- communication between ranks
    CHOICE("comm.compression.mode", comm.compression.mode, "none",
           "none, bf16, int8, fp8, topk, onebit", RECORDED,
           .help = "compression of the gradients that ranks exchange, which changes the result: "
                   "int8 and fp8 use blocks with a scale; topk and onebit add what they lose to "
                   "the next step's gradients",
           .also = "grad_compression, gradient_compression"),
    REAL("comm.compression.bound", comm.compression.bound, "0", 0, 1, RECORDED,
         .help = "relative error of a bucket above which all ranks continue without "
                 "compression; 0 is the codec's own: bf16 0.005, int8 and fp8 0.05, topk and "
                 "onebit none"),
    REAL("comm.compression.keep", comm.compression.keep, "0.01", 1e-6, 1, RECORDED,
         .help = "share of the values that topk sends"),
    INT("comm.compression.warmup", comm.compression.warmup, "100", 0, 1e9, RECORDED, "steps",
        .help = "first steps in which topk and onebit send whole gradients"),
    CHOICE("comm.transport", comm.transport, "auto", "auto, shm, ucx, mpi, nccl, peer", FREE,
           .help = "transport of bytes between ranks: auto is shared memory inside a host and "
                   "UCX between hosts; mpi is the Open MPI whose mpirun started the ranks; nccl "
                   "is NCCL between GPUs, peer lets those of a host read each other's memory"),
    OTHER("comm.tuning", PATH, comm.tuning, NULL, RECORDED,
          .help = "table of the fastest collective algorithms, which `trireme bench comm "
                  "--tune FILE` writes; without it the built-in choices apply"),

    // ---- failures and spares, for `simulate` and `plan`
    REAL("fleet.mtbf_device_h", fleet.mtbf_device_h, "0", 0, 1e15, FREE,
         .help = "device-hours between two failures that stop the run, for `simulate` and "
                 "`plan`; 0 takes the cluster's value",
         .also = "mtbf, mttf"),
    REAL("fleet.repair_h", fleet.repair_h, "0", 0, 1e9, FREE,
         .help = "hours until a failed node is back, for `simulate` and `plan`; 0 takes the "
                 "cluster's value",
         .also = "mttr"),
    INT("fleet.spares", fleet.spares, "-1", -1, 1e9, FREE, "devices",
        .help = "number of spare devices that replace those in repair, for `simulate` and "
                "`plan`; -1 is as many as are needed",
        .also = "spare_nodes"),
    CHOICE("price.kind", price.kind, "auto",
           "auto, on-demand, reserved, owned, spot, reserved-1y, reserved-3y", FREE,
           .help = "price of the cluster that applies, for `simulate` and `plan`; with spot, "
                   "nodes are taken away at the cluster's rate; auto is the first known price"),
    REAL("price.device_hour", price.device_hour, "0", 0, 1e9, FREE,
         .help = "US dollars per device and hour, for `simulate` and `plan`; 0 takes the "
                 "cluster's price",
         .also = "gpu_hour, device_usd_h"),
    REAL("price.kwh", price.kwh, "0", 0, 1e9, FREE,
         .help = "additional US dollars per kWh, for `simulate` and `plan`; 0 means that the "
                 "device's price includes energy",
         .also = "electricity, kwh_usd"),

    INT("cluster.devices", cluster.devices, "0", 0, 1 << 24, FREE, "devices",
        .help = "number of devices of the run, for `simulate` and `plan`; layout.dp follows "
                "from it if it is not given; 0 is as many as the layout needs",
        .also = "gpus, world_size, num_devices"),
    OTHER("profile", TEXT, profile, "trireme", FREE,
          .help = "software whose kernels, overlap and kept activations are modelled, for "
                  "`simulate` and `plan`; trireme is this program"),
    OTHER("flops_convention", TEXT, flops_convention, "causal", FREE,
          .help = "rule by which `mfu` counts FLOPs, for `simulate` and `plan`; causal is this "
                  "project's rule, which counts half of causal attention"),

    // ---- reports
    OTHER("trace.steps", RANGE, trace.steps, NULL, FREE,
          .help = "steps of which the run writes a Chrome trace, such as 10:12"),
    INT("log.every", log.every, "10", 1, 1e9, FREE, "steps",
        .help = "steps per line of the log; the metrics file has every step",
        .also = "log_interval, logging_steps"),
    OTHER("log.metrics_limit", BYTES, log.metrics_limit, "0", FREE,
          .help = "size at which metrics.jsonl is rotated: the file is renamed to "
                  "metrics-STEP.jsonl, with the last step in it, and another one begins; 0 is "
                  "never"),
    CHOICE("log.format", log.format, "text", "text, json", FREE,
           .help = "format of the log's lines"),
};

const option_table run_config_table = {
    .title = "Configuration of a run",
    .rows = rows,
    .count = COUNT_OF(rows),
};
_Static_assert((int)STEP_HISTORY == 64, "the limits and help of policy.spike say 64");
