"""The pages' examples as they are printed, with the line breaks that the text lost."""

CENTRAL_STORAGE = {
    "class": """
strategy = tf.distribute.experimental.CentralStorageStrategy()
# Create a dataset
ds = tf.data.Dataset.range(5).batch(2)
# Distribute that dataset
dist_dataset = strategy.experimental_distribute_dataset(ds)
with strategy.scope():
    @tf.function
    def train_step(val):
        return val + 1
    # Iterate over the distributed dataset
    for x in dist_dataset:
        # process dataset elements
        strategy.experimental_run_v2(train_step, args=(x,))
""",
    "experimental_distribute_dataset": """
strategy = tf.distribute.CentralStorageStrategy()  # with 1 CPU and 1 GPU
dataset = tf.data.Dataset.range(10).batch(2)
dist_dataset = strategy.experimental_distribute_dataset(dataset)
for x in dist_dataset:
    print(x)  # Prints PerReplica values [0, 1], [2, 3],...
""",
    "experimental_distribute_datasets_from_function": """
def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    d = tf.data.Dataset.from_tensors([[1.]]).repeat().batch(batch_size)
    return d.shard(
        input_context.num_input_pipelines, input_context.input_pipeline_id)
inputs = strategy.experimental_distribute_datasets_from_function(dataset_fn)
for batch in inputs:
    replica_results = strategy.experimental_run_v2(replica_fn, args=(batch,))
""",
    "experimental_make_numpy_dataset": """
numpy_input = np.ones([10], dtype=np.float32)
dataset = strategy.experimental_make_numpy_dataset(numpy_input)
dist_dataset = strategy.experimental_distribute_dataset(dataset)
""",
    "reduce": """
strategy = tf.distribute.experimental.CentralStorageStrategy(
    compute_devices=['CPU:0', 'GPU:0'], parameter_device='CPU:0')
ds = tf.data.Dataset.range(10)
# Distribute that dataset
dist_dataset = strategy.experimental_distribute_dataset(ds)
with strategy.scope():
    @tf.function
    def train_step(val):
        # pass through
        return val
    # Iterate over the distributed dataset
    for x in dist_dataset:
        result = strategy.experimental_run_v2(train_step, args=(x,))
        result = strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=None).numpy()
        # result: array([ 4, 6, 8, 10])
        result = strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=0).numpy()
        # result: 28
""",
}

TPU = {
    "class": """
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu='')
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.experimental.TPUStrategy(resolver)
""",
    "experimental_assign_to_logical_device": """
# Initializing TPU system with 2 logical devices and 4 replicas.
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu='')
tf.config.experimental_connect_to_cluster(resolver)
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
device_assignment = tf.tpu.experimental.DeviceAssignment.build(
    topology,
    computation_shape=[1, 1, 1, 2],
    num_replicas=4)
strategy = tf.distribute.TPUStrategy(
    resolver, experimental_device_assignment=device_assignment)
iterator = iter(inputs)
@tf.function()
def step_fn(inputs):
    output = tf.add(inputs, inputs)
    # Add operation will be executed on logical device 0.
    output = strategy.experimental_assign_to_logical_device(output, 0)
    return output
strategy.run(step_fn, args=(next(iterator),))
""",
    "experimental_distribute_dataset": """
strategy = tf.distribute.MirroredStrategy()
# Create a dataset
dataset = dataset_ops.Dataset.TFRecordDataset([
    "/a/1.tfr", "/a/2.tfr", "/a/3.tfr", "/a/4.tfr"])
# Distribute that dataset
dist_dataset = strategy.experimental_distribute_dataset(dataset)
# Iterate over the `tf.distribute.DistributedDataset`
for x in dist_dataset:
    # process dataset elements
    strategy.run(replica_fn, args=(x,))
""",
    "element_spec": """
strategy = tf.distribute.MirroredStrategy()
# Create a dataset
dataset = dataset_ops.Dataset.TFRecordDataset([
    "/a/1.tfr", "/a/2.tfr", "/a/3.tfr", "/a/4.tfr"])
# Distribute that dataset
dist_dataset = strategy.experimental_distribute_dataset(dataset)
@tf.function(input_signature=[dist_dataset.element_spec])
def train_step(inputs):
    # train model with inputs
    return
# Iterate over the `tf.distribute.DistributedDataset`
for x in dist_dataset:
    # process dataset elements
    strategy.run(train_step, args=(x,))
""",
}
