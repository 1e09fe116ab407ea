# The sources of the CUDA backend, relative to the root: TP_CUDA_KERNEL_SOURCES is compiled by nvcc (and as C++ over the
# fakes), TP_CUDA_SOURCES is everything, NCCL's Communicator included. Host files and kernel files each by their owner.
set(TP_CUDA_KERNEL_SOURCES
  worker/collective/nccl/divide.cc
  worker/device/cuda/kernels_attention.cc
  worker/device/cuda/kernels_binary.cc
  worker/device/cuda/kernels_convolution.cc
  worker/device/cuda/kernels_copy.cc
  worker/device/cuda/kernels_elementwise.cc
  worker/device/cuda/kernels_norm.cc
  worker/device/cuda/kernels_order.cc
  worker/device/cuda/kernels_reduce.cc
  worker/device/cuda/kernels_rotary.cc
  worker/device/cuda/kernels_sample.cc
  worker/device/cuda/kernels_select.cc
  worker/device/cuda/kernels_sum.cc
  worker/device/cuda/product.cc
)
set(TP_CUDA_SOURCES
  worker/collective/nccl/abort_job.cc
  worker/collective/nccl/nccl_address.cc
  worker/collective/nccl/nccl_backend.cc
  worker/collective/nccl/nccl_communicator.cc
  worker/collective/nccl/nccl_handles.cc
  worker/device/cuda/cuda_status.cc
  worker/device/cuda/lt_plans.cc
  ${TP_CUDA_KERNEL_SOURCES}
)
