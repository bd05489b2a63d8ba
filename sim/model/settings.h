// The settings of model, cluster and software stack, which scenarios have and profiles too. They
// are read into sp_model, sp_cluster and sp_stack.
#ifndef SLIMPACK_SIM_MODEL_SETTINGS_H
#define SLIMPACK_SIM_MODEL_SETTINGS_H

#include "sim/base/setting.h"

extern const sp_setting_table sp_model_settings, sp_cluster_settings, sp_stack_settings;

#endif
