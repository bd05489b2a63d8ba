// What the tables of frameworks share.
#ifndef SLIMPACK_EXPERIMENTS_FRAMEWORKS_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_FRAMEWORKS_PRIVATE_H

#include "experiments/frameworks/frameworks.h"

// Tells an argument of the precision that states another than BF16.
void framework_tell_precision(framework_import *import, const char *name);

// The GPUs that a launcher of a script starts, as facts.
void framework_read_launch(framework_import *import);

void framework_read_megatron(framework_import *import);
void framework_write_megatron(framework_output *output);
void framework_read_torchtitan(framework_import *import);
void framework_write_torchtitan(framework_output *output);
void framework_read_deepspeed(framework_import *import);
void framework_write_deepspeed(framework_output *output);
void framework_read_trl(framework_import *import);
void framework_write_trl(framework_output *output);
void framework_read_accelerate(framework_import *import);
void framework_read_nanotron(framework_import *import);
void framework_write_nanotron(framework_output *output);

extern const char framework_torchtitan_own[], framework_torchtitan_free[],
    framework_torchtitan_noted[];
extern const char framework_deepspeed_own[], framework_deepspeed_free[],
    framework_deepspeed_noted[];
extern const char framework_trl_own[], framework_trl_free[], framework_trl_noted[];
extern const char framework_accelerate_own[], framework_accelerate_free[],
    framework_accelerate_noted[];
extern const char framework_nanotron_own[], framework_nanotron_free[], framework_nanotron_noted[];

#endif
