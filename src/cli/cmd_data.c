// `data`: what lies in data files, and preparing them: inspect, pack, show.
#include "cli/commands.h"
