// Wrong timelines on demand.
#ifndef SLIMPACK_BACKENDS_FAKE_FAKE_DAMAGE_H
#define SLIMPACK_BACKENDS_FAKE_FAKE_DAMAGE_H

#include "backends/fake/fake_options.h"

// Damages a step as the options ask; false when memory runs out.
bool sp_i_fake_damage(const sp_i_fake_options *options, sp_measured_step *step);

#endif
