// The configurations that `init` writes.
#ifndef CLI_INIT_CONFIG_H
#define CLI_INIT_CONFIG_H

typedef enum init_preset { INIT_TINY, INIT_124M, INIT_PRESET_COUNT } init_preset;
const char *init_config_text(init_preset preset); // YAML

#endif
