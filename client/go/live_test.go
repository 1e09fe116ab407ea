package tensorplane

import (
	"bytes"
	"context"
	"math"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// What the scenario does not use, on the cluster of two workers that tests/client/go starts.
func TestOnALiveCluster(t *testing.T) {
	server, demo := os.Getenv("TENSORPLANE_TEST_SERVER"), os.Getenv("TENSORPLANE_TEST_DEMO")
	if server == "" {
		t.Skip("TENSORPLANE_TEST_SERVER is not set")
	}
	ctx, client := context.Background(), connect(t, server, Options{Timeout: 2 * time.Minute})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	submission, err := ReadSubmission(demo + "/mlp.textproto")
	check(err)
	created, err := client.CreateModel(ctx, submission, "mlp", nil)
	check(err)
	defer client.Delete(ctx, "mlp")
	placed, err := client.Parallelize(ctx, "mlp", nil, "tp=2")
	check(err)
	ready, err := client.InitStates(ctx, "mlp", false)
	check(err)
	if created.State != "CREATED" || placed.Model.State != "PARALLELIZED" || ready.State != "READY" {
		t.Error(created, placed, ready)
	}
	if _, err := client.Submit(ctx, demo+"/mlp.textproto", nil); Code(err) != codes.AlreadyExists {
		t.Error(err)
	}
	replaced, err := client.Submit(ctx, demo+"/mlp.textproto", &SubmitOptions{Replace: true, Mesh: "tp=1"})
	check(err)
	if replaced.TakenOver == nil || replaced.TakenOver.States != 4 || replaced.Model.Mesh.String() != "tp=1" {
		t.Error(replaced)
	}
	_, err = client.Submit(ctx, demo+"/mlp.textproto", &SubmitOptions{Replace: true})
	check(err)
	models, err := client.Models(ctx)
	check(err)
	if len(models) != 1 || models[0].Name != "mlp" {
		t.Error(models)
	}

	x := NewTensor([]float32{1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}, 2, 8)
	full, err := client.Forward(ctx, "mlp", Inputs{"x": x}, &ForwardOptions{ModuleOutputs: true})
	check(err)
	if full.Outputs["fc1:output"] == nil || len(full.Names) < 3 {
		t.Error(full.Names)
	}
	row := func(i int) *Tensor { return &Tensor{F32, []int64{1, 8}, x.Data[32*i : 32*i+32]} }
	shards, err := client.Forward(ctx, "mlp", Inputs{"x": &Shards{Blocks: map[int]*Tensor{0: row(0), 1: row(1)}, Placements: "tp=S(0)"}},
		&ForwardOptions{OutputShards: true})
	check(err)
	for rank, shard := range shards.OutputShards["y"].Shards {
		if shard.Rank != rank || !near(t, shard.Tensor, full.Outputs["y"]) {
			t.Error(rank, shard)
		}
	}
	_, err = client.CreateMesh(ctx, "t", "tp=2", "worker-0", "worker-1")
	check(err)
	defer client.DeleteMesh(ctx, "t")
	_, err = client.PutTensor(ctx, "hidden", x, PutOptions{Mesh: "t", Placements: "tp=S(1)", SrcDataRank: 0, NoSrcDataRank: true})
	check(err)
	defer client.DeleteTensor(ctx, "hidden")
	of, err := client.Forward(ctx, "mlp", Inputs{"x": Ref("hidden")}, nil)
	check(err)
	if !near(t, of.Outputs["y"], full.Outputs["y"]) {
		t.Error("a Ref gives other values")
	}
	if _, err := client.Forward(ctx, "mlp", Inputs{"z": x}, nil); Code(err) != codes.InvalidArgument {
		t.Error(err)
	}

	big := make([]float32, 700*1000) // 2.7 MiB
	for i := range big {
		big[i] = float32(i)
	}
	_, err = client.PutTensor(ctx, "big", NewTensor(big, 700, 1000), PutOptions{Mesh: "t", Placements: "tp=S(1)"})
	check(err)
	defer client.DeleteTensor(ctx, "big")
	got, err := client.GetTensor(ctx, "big")
	check(err)
	if !bytes.Equal(got.Data, NewTensor(big, 700, 1000).Data) {
		t.Error("other bytes came back")
	}
	sum := func(values ...int64) *Tensor { return NewTensor(values, int64(len(values))) }
	_, err = client.PutShards(ctx, "p", &Shards{Blocks: map[int]*Tensor{0: sum(1, 2), 1: sum(10, 20)}, Placements: "tp=P(sum)"}, PutOptions{Mesh: "t"})
	check(err)
	defer client.DeleteTensor(ctx, "p")
	reduced, err := client.GetTensor(ctx, "p")
	check(err)
	if values, err := Values[int64](reduced); err != nil || !reflect.DeepEqual(values, []int64{11, 22}) {
		t.Error(values, err)
	}
	arange := &v1.Initializer{Kind: &v1.Initializer_Arange_{Arange: &v1.Initializer_Arange{Start: 1, Step: 2}}}
	_, err = client.CreateTensor(ctx, "a", CreateTensorOptions{Mesh: "t", DType: I32, Shape: []int64{4}, Initializer: arange, Placements: "tp=S(0)"})
	check(err)
	defer client.DeleteTensor(ctx, "a")
	told, err := client.DescribeTensor(ctx, "a")
	check(err)
	if len(told.Shards) != 2 || !reflect.DeepEqual(told.Shards[1].Offset, []int64{2}) || told.Shards[1].SizeBytes != 8 {
		t.Error(told)
	}
	folder := t.TempDir() + "/saved"
	saved, err := client.SaveTensors(ctx, folder, "a", "p")
	check(err)
	if saved.SizeBytes != 4*4+2*8 {
		t.Error(saved)
	}
	check(client.DeleteTensor(ctx, "a"))
	loaded, err := client.LoadTensors(ctx, folder, "t", "tp=R", "a")
	check(err)
	if len(loaded.Tensors) != 1 || loaded.Tensors[0].Placements != "tp=R" {
		t.Error(loaded)
	}
	whole, err := client.GetTensor(ctx, "a")
	check(err)
	if values, err := Values[int32](whole); err != nil || !reflect.DeepEqual(values, []int32{1, 3, 5, 7}) {
		t.Error(values, err)
	}
	infos, err := client.Tensors(ctx)
	check(err)
	meshes, err := client.Meshes(ctx)
	check(err)
	workers, err := client.Workers(ctx)
	check(err)
	if len(infos) != 4 || len(meshes) != 1 || len(meshes[0].Tensors) != 4 || len(workers) != 2 || workers[1].Meshes["t"] != 1 {
		t.Error(infos, meshes, workers)
	}
}

func near(t *testing.T, a, b *Tensor) bool {
	t.Helper()
	first, err := a.Float32s()
	second, other := b.Float32s()
	if err != nil || other != nil || len(first) != len(second) {
		t.Fatal(err, other, len(first), len(second))
	}
	for i := range first {
		if math.Abs(float64(first[i]-second[i])) > 1e-6 {
			return false
		}
	}
	return true
}
