// The rows of the command table; each is defined in its cmd_<name>.c.
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/cli.h"

extern const cli_command cli_command_init;
extern const cli_command cli_command_train;
extern const cli_command cli_command_generate;
extern const cli_command cli_command_eval;
extern const cli_command cli_command_serve;
extern const cli_command cli_command_chaos;
extern const cli_command cli_command_replay;
extern const cli_command cli_command_check;
extern const cli_command cli_command_bisect;
extern const cli_command cli_command_digest;
extern const cli_command cli_command_import;
extern const cli_command cli_command_export;
extern const cli_command cli_command_gate;
extern const cli_command cli_command_stages;
extern const cli_command cli_command_explain;
extern const cli_command cli_command_catalog;
extern const cli_command cli_command_inspect;
extern const cli_command cli_command_data;
extern const cli_command cli_command_tokenizer;
extern const cli_command cli_command_bench;
extern const cli_command cli_command_doctor;
extern const cli_command cli_command_hang_report;
extern const cli_command cli_command_simulate;
extern const cli_command cli_command_plan;
extern const cli_command cli_command_verify;
extern const cli_command cli_command_config;
extern const cli_command cli_command_help;

#endif
