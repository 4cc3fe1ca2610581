// `import`: from a Hugging Face folder to one that train, generate and digest read.
#include "cli/commands.h"
