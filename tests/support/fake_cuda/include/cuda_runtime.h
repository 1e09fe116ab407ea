// Stands for CUDA's header of that name where the toolkit is absent; see cuda_runtime_api.h.
#pragma once

#include <cuda_runtime_api.h>
