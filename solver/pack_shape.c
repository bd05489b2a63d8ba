#include "solver/pack_shape.h"

int sp_i_taper_packs(const sp_i_taper *taper)
{
    return taper->rise + taper->flat + taper->fall;
}

void sp_i_taper_targets(const sp_i_taper *taper, double total, double *target)
{
    int packs = sp_i_taper_packs(taper);
    double size = 1.0;
    for (int k = taper->rise - 1; k >= 0; k--) {
        size /= taper->grow;
        target[k] = size;
    }
    for (int k = 0; k < taper->flat; k++) {
        target[taper->rise + k] = 1.0;
    }
    size = 1.0;
    for (int k = packs - taper->fall; k < packs; k++) {
        size /= taper->shrink;
        target[k] = size;
    }
    double sum = 0.0;
    for (int k = 0; k < packs; k++) {
        sum += target[k];
        target[k] = sum;
    }
    for (int k = 0; k < packs; k++) {
        target[k] *= total / sum;
    }
}
