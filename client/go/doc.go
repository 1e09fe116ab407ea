// Package tensorplane drives a Tensorplane coordinator: submits models, runs them on tensors, streams generated tokens,
// places tensors on meshes of workers. Example:
//
//	client, err := tensorplane.Connect("127.0.0.1:7050", nil)
//	_, err = client.Submit(ctx, "deploy/demo/mlp.textproto", nil)
//	answer, err := client.Forward(ctx, "mlp", tensorplane.Inputs{"x": tensorplane.NewTensor(values, 1, 8)}, nil)
//	y, err := tensorplane.Values[float32](answer.Outputs["y"])
//
// Meshes are written "dp=2,tp=2" and placements "dp=R,tp=S(0)", as for tpctl. Every call takes a context; errors are of
// type *Error. What is UNAVAILABLE is repeated (see Retry); all attempts of a call carry one request id, so that nothing
// is done twice. A Client is safe for concurrent use. The messages of proto/tp/v1 are in package tpv1.
package tensorplane
