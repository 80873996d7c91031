import drumline.distribute as dist

dist.set_cpu_devices(8)
