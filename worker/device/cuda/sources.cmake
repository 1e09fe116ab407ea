# The sources of the CUDA backend, relative to the root: TP_CUDA_KERNEL_SOURCES is compiled by nvcc (and as C++ over the
# fakes), TP_CUDA_SOURCES is everything, NCCL's Communicator included. Host files and kernel files each by their owner.
set(TP_CUDA_KERNEL_SOURCES
  worker/device/cuda/kernels_convolution.cc
  worker/device/cuda/kernels_norm.cc
  worker/device/cuda/kernels_rotary.cc
)
set(TP_CUDA_SOURCES
  worker/device/cuda/cuda_status.cc
  ${TP_CUDA_KERNEL_SOURCES}
)
